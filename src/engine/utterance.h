// One utterance: prompt, frame loop, guards, codec. Both kinds of stream drive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/codec_run.h"
#include "engine/core.h"
#include "engine/guards.h"
#include "engine/prepare.h"
#include "engine/tap.h"
#include "model/prompt.h"

namespace skald::engine {

/// Frames that are in work beyond the next one while the codec decodes `frames`, on a device that is kept
/// `ahead` of the host else: decoding a frame takes less than half the time of making one. No more than the
/// device still reports.
int32_t frames_beside_codec(int32_t ahead, int64_t frames);

/// Used from one thread at a time, except cancel(). Gives its slot back as soon as it is over.
class Utterance {
 public:
  /// Takes a slot. With complete text the prompt is built here, so that text_too_long comes before any work;
  /// the device works from the first next() on. `started` is the moment the request came in.
  Utterance(std::shared_ptr<Core> core, const SpeechRequest& request, Prepared prepared,
            const Diagnosis* diagnosis, Clock::time_point started);

  /// Called before every frame while the text is incomplete; it may call set_text.
  std::function<void()> pull_text;
  /// Text that arrives in pieces: all ids so far (of ids[3:-5]), their role rows once the first is known, and
  /// the length of the text so far. Throws Error(text_too_long).
  void set_text(std::span<const int32_t> ids, std::span<const int32_t> role_ids, uint64_t code_points,
                bool complete);
  /// True while more text would be of use: the prompt is not built, or fewer than kLookAhead ids wait to be
  /// fed.
  bool wants_text() const;
  bool has_prompt() const { return prompt_.has_value(); }

  /// Up to max_frames frames of audio, as SpeechStream::next_audio. An empty chunk that is not the last one
  /// means that text is needed. Frames that were complete when an error came are delivered first.
  AudioChunk next(int32_t max_frames);
  void cancel() noexcept { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  /// Ends the utterance with an error found elsewhere; next() throws it once what is complete was delivered.
  void fail(std::exception_ptr error);
  bool over() const { return over_; }
  void warn(std::string warning) { result_.warnings.push_back(std::move(warning)); }

  SpeechResult result() const;
  std::vector<int32_t> codes() const { return codes_; }

  // ---- In place of next(): steps for a scheduler that runs the frames of several utterances in one program.
  // An error ends the utterance; what was complete before it can still be delivered. Not with a diagnosis.

  int32_t slot() const { return lease_.slot(); }
  bool stopped() const { return stop_ != StopReason::none; }
  /// Takes text that arrived. False where more text is needed, or the utterance has stopped.
  bool ready();
  bool started() const { return running_; }
  /// Runs the prompt; once, when ready.
  void start();
  /// Whether the device can take another frame while at most `ahead` are in work beyond the next one.
  bool can_submit(int32_t ahead) const;
  /// The last frame has to be fed back before the next one is drawn.
  bool needs_step() const { return submitted_ > 0; }
  void note_submitted() { ++submitted_; }
  bool in_flight() const { return !stopped() && submitted_ > frames(); }
  /// Waits for the oldest frame in work.
  void collect();
  /// Its share of the time that a frame took.
  void charge(double milliseconds) { frame_ms_ += milliseconds; }
  /// Frames that deliver() would decode now, and whether it can end the utterance.
  int32_t deliverable() const;
  /// At most max_frames frames of audio. An empty chunk that is not the last one: there is nothing more, and
  /// error() says why.
  AudioChunk deliver_ready(int32_t max_frames);
  /// The utterance ends with an error found by its driver.
  void end_with(std::exception_ptr error);
  std::exception_ptr error() const { return error_; }
  const std::vector<int32_t>& all_codes() const { return codes_; }

 private:
  static constexpr size_t kLookAhead = 64;

  void build_prompt();
  void note_clone(const SpeechRequest& request);
  void run_prompt();
  template <class Body>
  void guarded(Body&& body) noexcept;
  void run_frames(int64_t until);
  bool text_ready();
  bool text_row_ready(int64_t frame) const;
  void run_frame();
  void submit_frames(int32_t ahead);
  void keep_ahead(int32_t max_frames);
  backend::SlotStatus await_frame(std::vector<int32_t>& codes);
  void take_frame(const std::vector<int32_t>& codes, backend::SlotStatus status);
  void settle(backend::SlotStatus status);
  void watch(int32_t code0);
  void stop_at_bound();
  void stop(StopReason reason) { stop_ = reason; }
  void stop(ErrorCode code, const std::string& message);
  void check_cancelled();
  AudioChunk deliver(int32_t max_frames);
  void decode_reference(std::vector<float>& kept);
  void finish();
  [[noreturn]] void rethrow();

  int64_t frames() const { return static_cast<int64_t>(codes_.size()) / core_->groups(); }
  /// Nothing may be delivered before the end is known.
  bool holds_back() const {
    return decode_ == DecodeMode::whole || (official_cut_ && prepared_.input.in_context);
  }

  std::shared_ptr<Core> core_;
  SlotLease lease_;
  Prepared prepared_;
  Tap tap_;
  DecodeMode decode_;
  bool official_cut_;
  StallGuard stall_;
  std::vector<float> x_vector_;
  CodecRun codec_;
  Clock::time_point started_;

  std::optional<model::Prompt> prompt_;
  int64_t trailing_ = 0;   ///< text rows handed over to be fed one per frame
  int64_t fed_ = 0;        ///< frames whose row was fed back before the last frame that was looked at
  int64_t submitted_ = 0;  ///< frames handed to the device, looked at or not
  int32_t first_run_ = 0;  ///< number of the slot's run that draws frame 0
  int32_t room_ = 0;       ///< positions that the prompt leaves
  bool running_ = false, limited_ = false;
  std::vector<int32_t> codes_;
  int64_t delivered_ = 0;  ///< frames
  bool reference_decoded_ = false;

  std::atomic<bool> cancelled_ = false;
  StopReason stop_ = StopReason::none;
  std::exception_ptr error_;
  bool over_ = false;
  double frame_ms_ = 0;
  SpeechResult result_;
};

}  // namespace skald::engine
