// The engine: opens a model on a device, hands out streams.
#include <fmt/format.h>

#include <random>

#include "base/float_environment.h"
#include "engine/codec_run.h"
#include "engine/core.h"
#include "engine/long_text.h"
#include "engine/make_voice.h"
#include "engine/prepare.h"
#include "engine/settings.h"
#include "engine/streams.h"
#include "engine/voices.h"
#include "skald/skald.h"

namespace skald {

namespace engine {
namespace {

ModelInfo describe(const model::ModelConfig& config) {
  ModelInfo info;
  info.type = model::model_type_name(config.type);
  info.size = config.size_tag;
  for (const auto& [name, id] : config.talker.speaker_ids) info.voices.push_back(name);
  info.languages = model::language_names(config);
  info.sample_rate = config.codec.output_sample_rate;
  info.samples_per_frame = config.codec.decode_upsample_rate;
  info.groups = config.talker.num_code_groups;
  info.hidden_size = config.talker.hidden_size;
  info.vocab_size = config.talker.vocab_size;
  info.codes = config.predictor.vocab_size;
  info.takes_instruct = model::takes_instruct(config);
  info.piece_limit = piece_limit_of(config);
  return info;
}

std::string random_id() {
  std::random_device device;
  std::string id;
  for (int word = 0; word < 4; ++word) id += fmt::format("{:08x}", device());
  return id;
}

class LoadedEngine final : public Engine {
 public:
  explicit LoadedEngine(std::shared_ptr<Core> core)
      : core_(std::move(core)), info_(describe(core_->config())) {
    info_.device = core_->device->name();
    info_.device_notes = core_->device_notes;
  }

  const ModelInfo& info() const override { return info_; }
  std::string status() const override { return core_->device->status(); }

  std::unique_ptr<SpeechStream> start_stream(const SpeechRequest& request,
                                             const Diagnosis* diagnosis) override {
    const DefaultFloats floats;
    return make_speech_stream(core_, completed_request(*core_, request), diagnosis);
  }

  std::unique_ptr<TextStream> start_text_stream(const SpeechRequest& request,
                                                const Diagnosis* diagnosis) override {
    const DefaultFloats floats;
    return make_text_stream(core_, completed_request(*core_, request), diagnosis);
  }

  PromptInfo prompt(const SpeechRequest& request) const override {
    Prepared prepared = prepare(core_->config(), core_->tokenizer,
                                with_voice(core_->config(), core_->voices, request), false);
    const model::Prompt prompt = model::build_prompt(core_->config(), prepared.input);
    PromptInfo info;
    info.ids = std::move(prepared.ids);
    for (const model::PromptRow& row : prompt.rows)
      info.rows.push_back({row.text_id, row.codec_ids, row.speaker_vector});
    info.trailing = model::trailing_ids(core_->config(), prepared.input, prompt);
    info.language = std::move(prepared.language);
    info.warnings = std::move(prepared.warnings);
    return info;
  }

  std::vector<float> decode(std::span<const int32_t> codes, DecodeMode mode) override {
    std::vector<float> samples;
    samples.reserve(codes.size() / static_cast<size_t>(core_->groups()) *
                    static_cast<size_t>(core_->samples_per_frame()));
    decode_to(codes, mode,
              [&](std::span<const float> part) { samples.insert(samples.end(), part.begin(), part.end()); });
    return samples;
  }

  void decode_to(std::span<const int32_t> codes, DecodeMode mode, const SampleSink& sink) override {
    const DefaultFloats floats;
    check_codes(core_->config(), codes, "codes");
    const SlotLease lease(core_);
    CodecRun run(*core_, lease.slot(), mode);
    const auto most = static_cast<size_t>(core_->options.codec_chunk * core_->groups());
    std::vector<float> samples;
    for (std::span<const int32_t> left = codes; !left.empty();) {
      const auto part = left.first(std::min(most, left.size()));
      samples.clear();
      run.decode(part, samples);
      sink(samples);
      left = left.subspan(part.size());
    }
  }

  std::vector<int32_t> encode(const SampleSource& source) override {
    const DefaultFloats floats;
    return engine::encode(*core_, source);
  }

  MadeVoice make_voice(const VoiceRequest& request) override {
    const DefaultFloats floats;
    VoiceRequest completed = request;
    if (completed.request_id.empty()) completed.request_id = random_id();
    return engine::make_voice(*core_, completed);
  }

  void add_voice(Voice voice, bool replace) override {
    require_fit(core_->config(), voice);
    core_->voices.add(std::make_shared<const Voice>(std::move(voice)), replace);
  }

  void remove_voice(std::string_view name) override { core_->voices.remove(name); }
  std::shared_ptr<const Voice> find_voice(std::string_view name) const override {
    return core_->voices.find(name);
  }
  std::vector<std::string> voice_names() const override { return core_->voices.names(); }

 private:
  std::shared_ptr<Core> core_;
  ModelInfo info_;
};

}  // namespace

SpeechRequest completed_request(const Core& core, SpeechRequest request) {
  request = with_voice(core.config(), core.voices, std::move(request));
  if (!request.seed) request.seed = draw_seed();
  if (request.request_id.empty()) request.request_id = random_id();
  return request;
}

ModelInfo read_model_info(const std::filesystem::path& folder) {
  return describe(model::load_config(folder));
}

std::unique_ptr<Engine> make_engine(std::shared_ptr<Core> core) {
  return std::make_unique<LoadedEngine>(std::move(core));
}

}  // namespace engine

namespace {

[[noreturn]] void lacks(const char* what) {
  throw Error(ErrorCode::unsupported, fmt::format("this engine cannot {}", what));
}

}  // namespace

void Engine::decode_to(std::span<const int32_t> codes, DecodeMode mode, const SampleSink& sink) {
  sink(decode(codes, mode));
}
std::vector<int32_t> Engine::encode(const SampleSource&) { lacks("encode audio"); }
MadeVoice Engine::make_voice(const VoiceRequest&) { lacks("make voices"); }
void Engine::add_voice(Voice, bool) { lacks("take voices"); }
void Engine::remove_voice(std::string_view name) {
  throw Error(ErrorCode::unknown_voice, fmt::format("there is no voice \"{}\" to remove", name));
}
std::shared_ptr<const Voice> Engine::find_voice(std::string_view) const { return nullptr; }
std::vector<std::string> Engine::voice_names() const { return {}; }

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model_dir, const EngineOptions& options) {
  return engine::make_engine(engine::load_core(model_dir, options));
}

}  // namespace skald
