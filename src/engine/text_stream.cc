// A stream over text that arrives in pieces.
#include "base/float_environment.h"
#include "base/to_error.h"
#include "engine/streams.h"
#include "engine/text_feed.h"
#include "engine/text_queue.h"

namespace skald::engine {
namespace {

class PiecewiseTextStream final : public TextStream {
 public:
  PiecewiseTextStream(std::shared_ptr<Core> core, const SpeechRequest& request, const Diagnosis* diagnosis,
                      Clock::time_point started)
      : feed_(core->tokenizer, request),
        utterance_(core, request, prepare(core->config(), core->tokenizer, request, true), diagnosis,
                   started) {
    utterance_.pull_text = [this] { feed_.pull(queue_, utterance_); };
    if (!request.text.empty()) queue_.push(request.text);
  }

  bool push(std::string_view text) override { return queue_.push(text); }
  bool try_push(std::string_view text) override { return queue_.try_push(text); }
  void finish() override { queue_.finish(); }
  void cancel() noexcept override {
    utterance_.cancel();
    queue_.close();
  }

  StreamReply poll(int32_t max_frames) override {
    const DefaultFloats floats;
    StreamReply reply;
    try {
      reply.chunk = utterance_.next(max_frames);
      // CutMode::official may leave samples of the reference without any frame.
      reply.event = !reply.chunk.samples.empty() ? StreamEvent::chunk
                    : reply.chunk.last           ? StreamEvent::finished
                                                 : StreamEvent::need_text;
    } catch (...) {
      reply.event = StreamEvent::error;
      reply.error = to_error(std::current_exception());
    }
    if (utterance_.over()) queue_.close();
    return reply;
  }

  StreamReply next(int32_t max_frames) override {
    for (;;) {
      StreamReply reply = poll(max_frames);
      if (reply.event != StreamEvent::need_text) return reply;
      queue_.wait();
    }
  }

  SpeechResult result() const override { return utterance_.result(); }
  std::vector<int32_t> codes() const override { return utterance_.codes(); }

 private:
  TextQueue queue_;
  TextFeed feed_;
  Utterance utterance_;
};

}  // namespace

std::unique_ptr<TextStream> make_text_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                             const Diagnosis* diagnosis) {
  const auto started = Clock::now();
  return std::make_unique<PiecewiseTextStream>(std::move(core), request, diagnosis, started);
}

}  // namespace skald::engine
