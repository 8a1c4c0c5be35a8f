// A stream over text that is complete.
#include "base/float_environment.h"
#include "engine/streams.h"

namespace skald::engine {
namespace {

class CompleteTextStream final : public SpeechStream {
 public:
  CompleteTextStream(std::shared_ptr<Core> core, const SpeechRequest& request, const Diagnosis* diagnosis,
                     Clock::time_point started)
      : utterance_(core, request, prepare(core->config(), core->tokenizer, request, false), diagnosis,
                   started) {}

  AudioChunk next_audio(int32_t max_frames) override {
    const DefaultFloats floats;
    return utterance_.next(max_frames);
  }
  void cancel() noexcept override { utterance_.cancel(); }
  SpeechResult result() const override { return utterance_.result(); }
  std::vector<int32_t> codes() const override { return utterance_.codes(); }

 private:
  Utterance utterance_;
};

}  // namespace

std::unique_ptr<SpeechStream> make_speech_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                                 const Diagnosis* diagnosis) {
  const auto started = Clock::now();
  return std::make_unique<CompleteTextStream>(std::move(core), request, diagnosis, started);
}

}  // namespace skald::engine
