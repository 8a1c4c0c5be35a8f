// The reader's side of scheduled streams.
#include "engine/scheduler_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/to_error.h"
#include "engine/prepare.h"

namespace skald::engine {

Job::Job(std::shared_ptr<Core> core, const SpeechRequest& request, bool text_follows,
         std::shared_ptr<Pace> pace_of_client, Clock::time_point started)
    : feed(text_follows ? std::make_unique<TextFeed>(core->tokenizer, request) : nullptr),
      utterance(core, request, prepare(core->config(), core->tokenizer, request, text_follows), nullptr,
                started),
      pace(std::move(pace_of_client)),
      served(started),
      result(utterance.result()) {
  if (!feed) return;
  utterance.pull_text = [this] { feed->pull(queue, utterance); };
  if (!request.text.empty()) queue.push(request.text);
  texts = 1;
}

namespace {

/// What both kinds of stream do. One reader, but for cancel().
class Reader {
 public:
  Reader(std::shared_ptr<Bell> bell, std::shared_ptr<Job> job, int32_t samples_per_frame)
      : bell_(std::move(bell)), job_(std::move(job)), samples_per_frame_(samples_per_frame) {}
  /// Waits until the slot is free, so that a client's next stream finds one.
  ~Reader() {
    cancel();
    std::unique_lock lock(bell_->mutex);
    job_->changed.wait(lock, [&] { return job_->over; });
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  Job& job() { return *job_; }
  Bell& bell() { return *bell_; }

  void cancel() noexcept {
    job_->utterance.cancel();
    job_->queue.close();
    const std::lock_guard lock(bell_->mutex);
    bell_->ring_locked();
  }

  void text_came() {
    const std::lock_guard lock(bell_->mutex);
    ++job_->texts;
    bell_->ring_locked();
  }

  static void check(int32_t max_frames) {
    if (max_frames < 1)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("max_frames of a chunk is {}, but must be at least 1", max_frames));
  }

  /// Waits for samples, the end, or (`until_starved`) the need of more text; nothing in the last case.
  std::optional<AudioChunk> take(int32_t max_frames, bool until_starved) {
    check(max_frames);
    std::unique_lock lock(bell_->mutex);
    Job& j = *job_;
    j.changed.wait(lock, [&] { return !j.samples.empty() || j.over || (until_starved && j.starved()); });
    const bool cancelled = j.over && j.result.stop == StopReason::cancelled;
    if (!j.samples.empty() && !cancelled) return pop(max_frames);
    if (!j.over) return std::nullopt;
    if (j.error) std::rethrow_exception(j.error);
    return AudioChunk{.samples = {}, .frames = 0, .last = true};
  }

  SpeechResult result() const {
    const std::lock_guard lock(bell_->mutex);
    return job_->result;
  }
  std::vector<int32_t> codes() const {
    const std::lock_guard lock(bell_->mutex);
    return job_->codes;
  }

 private:
  AudioChunk pop(int32_t max_frames) {
    Job& j = *job_;
    AudioChunk chunk;
    // The very first chunk is one frame, as in a stream of one request, also for a reader that comes late.
    chunk.frames = std::min(began_ ? max_frames : 1, j.frames);
    began_ = true;
    // CutMode::official may leave samples of the reference beyond whole frames: they go with the first.
    const size_t kept =
        static_cast<size_t>(j.frames - chunk.frames) * static_cast<size_t>(samples_per_frame_);
    const auto cut = j.samples.end() - static_cast<std::ptrdiff_t>(kept);
    chunk.samples.assign(j.samples.begin(), cut);
    j.samples.erase(j.samples.begin(), cut);
    j.frames -= chunk.frames;
    chunk.last = j.over && !j.error && j.samples.empty();
    bell_->ring_locked();  // there is room again
    return chunk;
  }

  std::shared_ptr<Bell> bell_;
  std::shared_ptr<Job> job_;
  int32_t samples_per_frame_;
  bool began_ = false;  ///< a chunk was taken
};

class JobSpeechStream final : public SpeechStream {
 public:
  template <class... Parts>
  explicit JobSpeechStream(Parts&&... parts) : reader_(std::forward<Parts>(parts)...) {}
  AudioChunk next_audio(int32_t max_frames) override { return *reader_.take(max_frames, false); }
  void cancel() noexcept override { reader_.cancel(); }
  SpeechResult result() const override { return reader_.result(); }
  std::vector<int32_t> codes() const override { return reader_.codes(); }

 private:
  Reader reader_;
};

class JobTextStream final : public TextStream {
 public:
  template <class... Parts>
  explicit JobTextStream(Parts&&... parts) : reader_(std::forward<Parts>(parts)...) {}

  bool push(std::string_view text) override { return came(reader_.job().queue.push(text)); }
  bool try_push(std::string_view text) override { return came(reader_.job().queue.try_push(text)); }
  void finish() override {
    reader_.job().queue.finish();
    reader_.text_came();
  }
  void cancel() noexcept override { reader_.cancel(); }
  StreamReply poll(int32_t max_frames) override { return reply(max_frames, true); }
  StreamReply next(int32_t max_frames) override { return reply(max_frames, false); }
  SpeechResult result() const override { return reader_.result(); }
  std::vector<int32_t> codes() const override { return reader_.codes(); }

 private:
  bool came(bool pushed) {
    if (pushed) reader_.text_came();
    return pushed;
  }

  StreamReply reply(int32_t max_frames, bool until_starved) {
    StreamReply reply;
    try {
      auto chunk = reader_.take(max_frames, until_starved);
      reply.event = !chunk                    ? StreamEvent::need_text
                    : !chunk->samples.empty() ? StreamEvent::chunk
                                              : StreamEvent::finished;
      if (chunk) reply.chunk = *std::move(chunk);
    } catch (...) {
      reply.event = StreamEvent::error;
      reply.error = to_error(std::current_exception());
    }
    return reply;
  }

  Reader reader_;
};

}  // namespace

std::unique_ptr<SpeechStream> make_job_speech_stream(std::shared_ptr<Bell> bell, std::shared_ptr<Job> job,
                                                     int32_t samples_per_frame) {
  return std::make_unique<JobSpeechStream>(std::move(bell), std::move(job), samples_per_frame);
}

std::unique_ptr<TextStream> make_job_text_stream(std::shared_ptr<Bell> bell, std::shared_ptr<Job> job,
                                                 int32_t samples_per_frame) {
  return std::make_unique<JobTextStream>(std::move(bell), std::move(job), samples_per_frame);
}

}  // namespace skald::engine
