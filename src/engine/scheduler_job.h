// A stream as the scheduler's thread and its reader share it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/scheduler.h"
#include "engine/text_feed.h"
#include "engine/text_queue.h"
#include "engine/utterance.h"

namespace skald::engine {

/// How far a listener is behind what was made for it; consecutive streams of a client share it.
class Pace {
 public:
  Pace(double frame_seconds, bool live) : frame_seconds_(frame_seconds), live_(live) {}
  bool live() const { return live_; }
  /// A listener who ran dry hears what comes now from its start.
  void heard(int32_t frames, Clock::time_point now) {
    if (!first_ || *lead(now) < 0) first_ = now, frames_ = 0;
    frames_ += frames;
  }
  /// Text came after there was none: whoever ran dry meanwhile waits for a first frame again.
  void resume(Clock::time_point now) {
    if (first_ && *lead(now) < 0) first_.reset(), frames_ = 0;
  }
  std::optional<double> lead(Clock::time_point now) const {
    if (!first_) return std::nullopt;
    return static_cast<double>(frames_) * frame_seconds_ -
           std::chrono::duration<double>(now - *first_).count();
  }
  /// The lead that decides about the next frames. Where nobody listens it is ample, less the time since the
  /// stream was `served`: listeners come first, and even late ones do not keep it out for ever.
  std::optional<double> turn(Clock::time_point now, Clock::time_point served) const {
    if (live_) return lead(now);
    return kAmpleLead - std::chrono::duration<double>(now - served).count();
  }

 private:
  double frame_seconds_;
  bool live_;
  std::optional<Clock::time_point> first_;
  int64_t frames_ = 0;
};

/// What wakes the scheduler's thread.
struct Bell {
  std::mutex mutex;  ///< guards the queues of every job, and the list of jobs
  std::condition_variable rung;
  uint64_t rings = 0;

  void ring_locked() {
    ++rings;
    rung.notify_one();
  }
};

/// One stream. `utterance` and `feed` belong to the scheduler's thread from the moment the job is handed
/// over; what is below the line is shared under Bell::mutex.
struct Job {
  Job(std::shared_ptr<Core> core, const SpeechRequest& request, bool text_follows, std::shared_ptr<Pace> pace,
      Clock::time_point started);

  TextQueue queue;  // has its own lock
  std::unique_ptr<TextFeed> feed;
  Utterance utterance;
  std::shared_ptr<Pace> pace;
  uint64_t order = 0;
  Clock::time_point served;              ///< when it came, or its last frame was begun
  std::optional<uint64_t> starved_with;  ///< `texts` when there was too little text for the next frame

  // ---- shared
  std::condition_variable changed;
  std::vector<float> samples;  ///< ready for the reader
  int32_t frames = 0;          ///< of them
  uint64_t texts = 0;          ///< times that text came
  uint64_t starved_at = 0;     ///< `texts` + 1 when the thread found too little text
  bool over = false;           ///< nothing will be added; the slot is free
  std::exception_ptr error;
  SpeechResult result;
  std::vector<int32_t> codes;

  bool starved() const { return starved_at == texts + 1; }
};

/// The reader's side of a stream over complete text.
std::unique_ptr<SpeechStream> make_job_speech_stream(std::shared_ptr<Bell> bell, std::shared_ptr<Job> job,
                                                     int32_t samples_per_frame);
/// The same over text that arrives.
std::unique_ptr<TextStream> make_job_text_stream(std::shared_ptr<Bell> bell, std::shared_ptr<Job> job,
                                                 int32_t samples_per_frame);

}  // namespace skald::engine
