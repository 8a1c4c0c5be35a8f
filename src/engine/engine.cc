// The engine: opens a model on a device, hands out streams.
#include <fmt/format.h>

#include <random>

#include "engine/codec_run.h"
#include "engine/core.h"
#include "engine/prepare.h"
#include "engine/settings.h"
#include "engine/streams.h"
#include "skald/skald.h"

namespace skald {

std::string_view stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::none: return "none";
    case StopReason::eos: return "eos";
    case StopReason::length: return "length";
    case StopReason::runaway: return "runaway";
    case StopReason::cancelled: return "cancelled";
    case StopReason::error: return "error";
  }
  return "none";
}

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
    return make_speech_stream(core_, completed_request(request), diagnosis);
  }

  std::unique_ptr<TextStream> start_text_stream(const SpeechRequest& request,
                                                const Diagnosis* diagnosis) override {
    return make_text_stream(core_, completed_request(request), diagnosis);
  }

  PromptInfo prompt(const SpeechRequest& request) const override {
    Prepared prepared = prepare(core_->config(), core_->tokenizer, request, false);
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
    check_codes(core_->config(), codes, "codes");
    const SlotLease lease(core_);
    std::vector<float> samples;
    samples.reserve(codes.size() / static_cast<size_t>(core_->groups()) *
                    static_cast<size_t>(core_->samples_per_frame()));
    CodecRun(*core_, lease.slot(), mode).decode(codes, samples);
    return samples;
  }

 private:
  std::shared_ptr<Core> core_;
  ModelInfo info_;
};

}  // namespace

SpeechRequest completed_request(SpeechRequest request) {
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

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model_dir, const EngineOptions& options) {
  return engine::make_engine(engine::load_core(model_dir, options));
}

}  // namespace skald
