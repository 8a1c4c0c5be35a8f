// A loaded model on one backend.
#include "model/model.h"

#include <algorithm>

#include "base/sha256.h"
#include "model/checkpoint.h"
#include "model/codec_decoder.h"
#include "model/codec_encoder.h"
#include "model/speaker_encoder.h"
#include "model/talker.h"
#include "model/talker_limits.h"
#include "skald/error.h"

namespace skald::model {

namespace {

bool read_in_place(const std::string& name) {
  return name.find("embedding") != std::string::npos && name.find("embedding_sum") == std::string::npos;
}

bool unused_here(const std::string& name) {
  return name.rfind("encoder.", 0) == 0 || name.rfind("speaker_encoder.", 0) == 0;
}

uint64_t packed_bytes(const std::vector<ExpectedTensor>& tensors, double matrix_bytes) {
  uint64_t bytes = 0;
  for (const ExpectedTensor& t : tensors) {
    if (read_in_place(t.name) || unused_here(t.name)) continue;
    uint64_t n = 1;
    for (int64_t d : t.shape) n *= static_cast<uint64_t>(d);
    bytes += t.shape.size() == 2 ? static_cast<uint64_t>(static_cast<double>(n) * matrix_bytes)
                                 : n * sizeof(float);
  }
  return bytes;
}

// Chunks of the codec encoder on a device behind the host, in frames: ten seconds in one run take a quarter
// less than in eight. A processor's time depends on the rows that there are, not on those that a program
// could have.
constexpr int32_t kLeastEncode = 16, kMostEncode = 128;
constexpr int32_t kShortClip = 4 * 24000;  // samples

class LoadedModel final : public Model {
 public:
  LoadedModel(const std::filesystem::path& dir, backend::Backend& device, const ModelOptions& options)
      : device_(device),
        options_(options),
        config_(load_config(dir)),
        main_(Checkpoint::open(dir)),
        codec_file_(Checkpoint::open(dir / "speech_tokenizer")) {
    require_tensors(*main_, config_);
    require_codec_tensors(*codec_file_, config_.codec);
    talker_ = std::make_unique<Talker>(device, WeightLoader(device, main_, "talker."), config_, options);
    codec_ = std::make_unique<CodecDecoder>(device, WeightLoader(device, codec_file_, "decoder."),
                                            config_.codec, options.slots, options.codec_chunk);
  }

  const ModelConfig& config() const override { return config_; }

  void begin(int32_t slot, const backend::SlotSettings& settings) override { talker_->begin(slot, settings); }
  int32_t prefill(int32_t slot, const Prompt& prompt, std::span<const float> x_vector) override {
    return talker_->prefill(slot, prompt, x_vector);
  }
  void append_text(int32_t slot, std::span<const int32_t> ids) override { talker_->append_text(slot, ids); }
  void frame_codes(std::span<const int32_t> slots) override { talker_->frame_codes(slots); }
  void frame_step(std::span<const int32_t> slots) override { talker_->frame_step(slots); }
  void release(int32_t slot) override { talker_->release(slot); }

  int32_t frames_ahead() const override { return device_.frames_ahead(); }
  int32_t runs(int32_t slot) const override { return talker_->runs(slot); }
  backend::FrameReport await_frame(int32_t slot, int32_t run, std::span<int32_t> codes) const override {
    return device_.await_report(talker_->slots(), slot, run, codes);
  }

  backend::SlotStatus status(int32_t slot) const override {
    return static_cast<backend::SlotStatus>(talker_->word(talker_->slots().status, slot));
  }
  int32_t frames(int32_t slot) const override { return talker_->word(talker_->slots().frames, slot); }
  void read_codes(int32_t slot, int32_t frame, std::span<int32_t> codes) const override {
    const backend::SlotArrays& s = talker_->slots();
    device_.read(s.ring.row_range(slot * s.ring_frames + frame % s.ring_frames, 1),
                 std::as_writable_bytes(codes));
  }

  void force(int32_t slot, std::span<const int32_t> codes) override {
    device_.write(talker_->slots().forced.row_range(slot, 1), std::as_bytes(codes));
  }
  void set_noise(int32_t slot, std::span<const float> talker, std::span<const float> predictor) override {
    if (!talker.empty()) device_.write(talker_->slots().noise.row_range(slot, 1), std::as_bytes(talker));
    if (!predictor.empty())
      device_.write(talker_->slots().predictor_noise.row_range(slot, 1), std::as_bytes(predictor));
  }
  std::vector<float> prompt_rows(const Prompt& prompt, std::span<const float> x_vector) override {
    return talker_->prompt_rows(prompt, x_vector);
  }
  void read_hidden(int32_t slot, std::span<float> to) const override {
    read_row(talker_->hidden(), slot, to);
  }
  void read_logits(int32_t slot, std::span<float> to) const override {
    read_row(talker_->logits(), slot, to);
  }
  void read_probs(std::span<float> to) const override { read_row(talker_->probs(), 0, to); }
  void read_predictor_logits(std::span<float> to) const override {
    read_row(talker_->predictor_logits(), 0, to);
  }
  void read_predictor_probs(std::span<float> to) const override {
    read_row(talker_->predictor_probs(), 0, to);
  }

  void codec_reset(int32_t slot) override { codec_->reset(slot); }
  void codec_decode(int32_t slot, std::span<const int32_t> codes, std::span<float> samples) override {
    codec_->decode(slot, codes, samples);
  }
  std::vector<std::byte> codec_save(int32_t slot) const override { return codec_->save(slot); }
  void codec_restore(int32_t slot, std::span<const std::byte> state) override {
    codec_->restore(slot, state);
  }

  MemoryEstimate encoder_memory() const override {
    MemoryEstimate m;
    m.weights = CodecEncoder::weight_bytes(config_.codec);
    m.buffers = CodecEncoder::buffer_bytes(config_.codec, encode_chunk());
    if (has_speaker_encoder()) {
      m.weights += SpeakerEncoder::weight_bytes(*config_.speaker_encoder);
      m.buffers += SpeakerEncoder::buffer_bytes(*config_.speaker_encoder, options_.reference_samples);
    }
    return m;
  }
  void load_encoders(const std::function<void()>& pause) override {
    // What an earlier call could load before memory ended stays.
    if (!codec_encoder_)
      codec_encoder_ = std::make_unique<CodecEncoder>(
          device_, WeightLoader(device_, codec_file_, "encoder.").exactly().pausing(pause), config_.codec,
          sizes(kLeastEncode, encode_chunk(), 2));
    if (has_speaker_encoder() && !speaker_encoder_)
      speaker_encoder_ = std::make_unique<SpeakerEncoder>(
          device_, WeightLoader(device_, main_, "speaker_encoder.").exactly().pausing(pause),
          *config_.speaker_encoder, sizes(kShortClip, options_.reference_samples, 4));
  }
  int32_t encode_chunk() const override { return behind_host() ? kMostEncode : options_.codec_chunk; }
  std::string speaker_encoder_hash() const override {
    if (!has_speaker_encoder()) return {};
    Sha256 hash;
    for (const std::string& name : main_->names())
      if (name.starts_with("speaker_encoder.") && name.ends_with(".bias"))
        hash.add(main_->get(name, main_->shape(name)).data);
    return hex(hash.finish());
  }
  std::vector<float> speaker_vector(std::span<const float> samples,
                                    const std::function<void()>& pause) override {
    if (!speaker_encoder_) throw Error(ErrorCode::internal, "the speaker encoder is not loaded");
    return speaker_encoder_->encode(samples, pause);
  }
  void encode_reset() override {
    if (!codec_encoder_) throw Error(ErrorCode::internal, "the codec encoder is not loaded");
    codec_encoder_->reset();
  }
  void encode(std::span<const float> samples, std::vector<int32_t>& codes) override {
    codec_encoder_->encode(samples, codes);
  }

 private:
  bool behind_host() const { return device_.frames_ahead() > 0; }
  /// Sizes of an encoder's programs: from `least` on, each `factor` times the one before.
  std::vector<int32_t> sizes(int32_t least, int32_t most, int32_t factor) const {
    std::vector<int32_t> all;
    for (int64_t size = least; behind_host() && size < most; size *= factor)
      all.push_back(static_cast<int32_t>(size));
    all.push_back(most);
    return all;
  }
  bool has_speaker_encoder() const { return config_.type == ModelType::base && config_.speaker_encoder; }

  void read_row(const backend::Buffer& rows, int32_t row, std::span<float> to) const {
    device_.read(rows.row_range(row, 1), std::as_writable_bytes(to));
  }

  backend::Backend& device_;
  const ModelOptions options_;
  const ModelConfig config_;
  std::shared_ptr<const Checkpoint> main_, codec_file_;  ///< tables are read in place
  std::unique_ptr<Talker> talker_;
  std::unique_ptr<CodecDecoder> codec_;
  std::unique_ptr<SpeakerEncoder> speaker_encoder_;
  std::unique_ptr<CodecEncoder> codec_encoder_;
};

}  // namespace

MemoryEstimate estimate_memory(const ModelConfig& config, const ModelOptions& options) {
  const TalkerConfig& t = config.talker;
  MemoryEstimate m;
  m.weights = packed_bytes(expected_tensors(config), options.matrix_bytes) +
              packed_bytes(expected_codec_tensors(config.codec), sizeof(float));
  if (config.has_input_projection())  // tables of projected embeddings, made while loading
    m.weights += sizeof(float) * uint64_t(config.predictor.hidden_size) *
                 (t.vocab_size + uint64_t(t.num_code_groups - 2) * config.predictor.vocab_size);
  const uint64_t positions = uint64_t(options.slots) * options.cache_capacity +
                             uint64_t(options.prefix_entries) * std::min(kPrefixRows, options.cache_capacity);
  m.cache = positions * sizeof(float) * (uint64_t(t.layers) * 2 * t.kv_heads * t.head_dim + t.hidden_size);
  m.buffers =
      3 * sizeof(float) * uint64_t(CodecDecoder::widest_stage(config.codec.decoder)) * options.codec_chunk;
  return m;
}

bool has_bf16_matrices(const std::filesystem::path& dir) {
  const std::shared_ptr<const Checkpoint> file = Checkpoint::open(dir);
  const std::vector<std::string> names = file->names();
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return file->shape(name).size() != 2 || read_in_place(name) || unused_here(name) ||
           file->type_name(name) == "BF16";
  });
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& dir, backend::Backend& device,
                                   const ModelOptions& options) {
  return std::make_unique<LoadedModel>(dir, device, options);
}

}  // namespace skald::model
