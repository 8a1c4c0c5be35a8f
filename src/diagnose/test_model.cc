// The small model: configuration, tensors, files.
#include "diagnose/test_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backend/tensors.h"
#include "diagnose/numbers.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "skald/error.h"

namespace skald::diagnose {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json predictor_config() {
  return {{"attention_bias", false},
          {"head_dim", 64},
          {"hidden_act", "silu"},
          {"hidden_size", 128},  // not the talker's, so that the projection between them is there
          {"intermediate_size", 384},
          {"max_position_embeddings", 65536},
          {"num_attention_heads", 4},
          {"num_code_groups", 16},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"use_sliding_window", false},
          {"vocab_size", 512}};
}

Json talker_config() {
  return {
      {"attention_bias", false},
      {"code_predictor_config", predictor_config()},
      {"codec_bos_id", 1101},
      {"codec_eos_token_id", 1102},
      {"codec_think_id", 1106},
      {"codec_nothink_id", 1107},
      {"codec_pad_id", 1100},
      {"codec_think_bos_id", 1108},
      {"codec_think_eos_id", 1109},
      {"codec_language_id", {{"english", 1050}, {"chinese", 1051}}},
      {"spk_id", {{"nobody", 1200}}},
      {"spk_is_dialect", {{"nobody", false}}},
      {"head_dim", 64},
      {"hidden_act", "silu"},
      {"hidden_size", 256},
      {"intermediate_size", 768},
      {"max_position_embeddings", 32768},
      {"num_attention_heads", 4},
      {"num_code_groups", 16},
      {"num_hidden_layers", 3},
      {"num_key_value_heads", 2},
      {"rms_norm_eps", 1e-6},
      {"rope_scaling", {{"interleaved", true}, {"mrope_section", {12, 10, 10}}, {"rope_type", "default"}}},
      {"rope_theta", 1000000},
      {"sliding_window", nullptr},
      {"text_hidden_size", 256},
      {"text_vocab_size", 640},
      {"vocab_size", 1536}};
}

Json main_config() {
  return {{"architectures", {"Qwen3TTSForConditionalGeneration"}},
          {"assistant_token_id", 601},
          {"im_end_token_id", 602},
          {"im_start_token_id", 603},
          {"tts_bos_token_id", 604},
          {"tts_eos_token_id", 605},
          {"tts_pad_token_id", 606},
          {"model_type", "qwen3_tts"},
          {"tokenizer_type", "qwen3_tts_tokenizer_12hz"},
          {"tts_model_size", "1b7"},
          {"tts_model_type", "custom_voice"},
          {"talker_config", talker_config()}};
}

Json codec_config() {
  return {{"architectures", {"Qwen3TTSTokenizerV2Model"}},
          {"model_type", "qwen3_tts_tokenizer_12hz"},
          {"encoder_valid_num_quantizers", 16},
          {"input_sample_rate", 24000},
          {"output_sample_rate", 24000},
          {"decode_upsample_rate", 1920},
          {"encode_downsample_rate", 1920},
          {"decoder_config",
           {{"attention_bias", false},
            {"latent_dim", 64},
            {"codebook_dim", 64},
            {"codebook_size", 512},
            {"decoder_dim", 96},
            {"hidden_act", "silu"},
            {"hidden_size", 64},
            {"intermediate_size", 128},
            {"layer_scale_initial_scale", 0.01},
            {"head_dim", 16},
            {"num_attention_heads", 4},
            {"num_hidden_layers", 2},
            {"num_key_value_heads", 4},
            {"num_quantizers", 16},
            {"num_semantic_quantizers", 1},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000},
            {"sliding_window", 72},
            {"upsample_rates", {8, 5, 4, 3}},
            {"upsampling_ratios", {2, 2}}}},
          {"encoder_config",
           {{"audio_channels", 1},
            {"codebook_dim", 8},
            {"codebook_size", 512},
            {"compress", 2},
            {"dilation_growth_rate", 2},
            {"head_dim", 8},
            {"hidden_act", "gelu"},
            {"hidden_size", 16},
            {"intermediate_size", 32},
            {"kernel_size", 7},
            {"last_kernel_size", 3},
            {"norm_eps", 1e-5},
            {"num_attention_heads", 2},
            {"num_filters", 4},
            {"num_hidden_layers", 2},
            {"num_key_value_heads", 2},
            {"num_quantizers", 18},
            {"num_residual_layers", 1},
            {"num_semantic_quantizers", 1},
            {"pad_mode", "constant"},
            {"residual_kernel_size", 3},
            {"rope_theta", 10000.0},
            {"sampling_rate", 24000},
            {"trim_right_ratio", 1.0},
            {"upsample_groups", 16},
            {"upsampling_ratios", {8, 6, 5, 4}},
            {"use_causal_conv", true},
            {"use_conv_shortcut", false},
            {"vector_quantization_hidden_dimension", 8}}}};
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out)
    throw Error(ErrorCode::io, fmt::format("cannot write '{}'; is there room on its disk?", path.string()));
}

/// FNV-1a.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001B3u;
  return h;
}

/// Values that keep activations near 1 through every layer.
class Filler {
 public:
  Filler(const std::string& name, const std::vector<int64_t>& shape) : numbers_(hash(name)) {
    const auto ends = [&](std::string_view end) { return name.ends_with(end); };
    double inputs = 1;
    for (size_t i = 1; i < shape.size(); ++i) inputs *= static_cast<double>(shape[i]);
    if (ends("cluster_usage")) {
      centre_ = 1.5f, spread_ = 0.4f;
    } else if (ends("norm.weight") || ends("layernorm.weight")) {
      centre_ = 1, spread_ = 0.2f;
    } else if (ends("scale") || ends("gamma")) {
      centre_ = 0.3f, spread_ = 0.1f;
    } else if (shape.size() < 2) {
      spread_ = 0.1f;  // biases, logarithms of the snake
    } else if (name.find("embedding") != std::string::npos) {
      spread_ = 0.7f;
    } else {
      spread_ = static_cast<float>(1.7 / std::sqrt(inputs));
      // The snake behind each of them makes differences up to three times as large, one layer after the
      // other: what two sound devices differ by must stay small.
      if (name.starts_with("decoder.decoder.")) spread_ *= 0.7f;
    }
  }
  float next() { return centre_ + spread_ * (2 * numbers_.unit() - 1); }

 private:
  Numbers numbers_;
  float centre_ = 0, spread_ = 0;
};

void append(std::string& bytes, const void* from, size_t count) {
  bytes.append(static_cast<const char*>(from), count);
}

void write_tensors(const fs::path& path, const std::vector<model::ExpectedTensor>& tensors, bool bf16) {
  Json header;
  std::string data;
  for (const model::ExpectedTensor& tensor : tensors) {
    const size_t begin = data.size();
    size_t count = 1;
    for (const int64_t n : tensor.shape) count *= static_cast<size_t>(n);
    Filler filler(tensor.name, tensor.shape);
    for (size_t i = 0; i < count; ++i) {
      const float value = filler.next();
      const uint16_t half = to_bf16(value);
      bf16 ? append(data, &half, sizeof(half)) : append(data, &value, sizeof(value));
    }
    header[tensor.name] = {
        {"dtype", bf16 ? "BF16" : "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  write_file(path, bytes + text + data);
}

}  // namespace

void write_test_model(const fs::path& folder) {
  static_assert(std::endian::native == std::endian::little);
  std::error_code failure;
  fs::create_directories(folder / "speech_tokenizer", failure);
  write_file(folder / "config.json", main_config().dump(1));
  write_file(folder / "generation_config.json", "{}");
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    write_file(folder / name, "{}");
  write_file(folder / "speech_tokenizer" / "config.json", codec_config().dump(1));
  const model::ModelConfig config = model::load_config(folder);
  write_tensors(folder / "model.safetensors", model::expected_tensors(config), true);
  write_tensors(folder / "speech_tokenizer" / "model.safetensors",
                model::expected_codec_tensors(config.codec), false);
}

TestModel::TestModel(const fs::path& parent) {
  std::string name = (parent / "skald-test-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw Error(ErrorCode::io, fmt::format("cannot make a folder in '{}'", parent.string()));
  path_ = name;
  try {
    write_test_model(path_);
  } catch (...) {
    std::error_code failure;
    fs::remove_all(path_, failure);
    throw;
  }
}

TestModel::~TestModel() {
  std::error_code failure;
  fs::remove_all(path_, failure);
}

}  // namespace skald::diagnose
