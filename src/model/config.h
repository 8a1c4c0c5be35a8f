// Configuration of one snapshot: plain data, read from its JSON files and validated. Specification section 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/fault.h"

namespace skald::model {

enum class ModelType { base, custom_voice, voice_design };
enum class ModelSize { size_0b6, size_1b7, other };  ///< `tts_model_size`; `other` for shrunken models

/// Names as in config.json: "base", "custom_voice", "voice_design".
const char* model_type_name(ModelType type);

/// One Qwen3-style decoder stack (talker or code predictor); specification 1.3, 1.4.
struct DecoderConfig {
  int32_t hidden_size = 0, intermediate_size = 0, layers = 0;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  int32_t vocab_size = 0;
  float rms_norm_eps = 0, rope_theta = 0;
  int32_t max_position_embeddings = 0;
};

struct TalkerConfig : DecoderConfig {
  int32_t text_vocab_size = 0, text_hidden_size = 0, num_code_groups = 0;
  int32_t codec_pad_id = 0, codec_bos_id = 0, codec_eos_id = 0;
  int32_t codec_think_id = 0, codec_nothink_id = 0, codec_think_bos_id = 0, codec_think_eos_id = 0;
  std::map<std::string, int32_t> language_ids;         ///< lower-case English names, dialects included
  std::map<std::string, int32_t> speaker_ids;          ///< lower-case names
  std::map<std::string, std::string> speaker_dialect;  ///< speaker -> dialect name; absent when it has none
  int32_t codes() const { return vocab_size - 1024; }  ///< audio codes of group 0
};

struct SpeakerEncoderConfig {
  int32_t enc_dim = 0, sample_rate = 24000, mel_dim = 128;
  std::vector<int32_t> enc_channels{512, 512, 512, 512, 1536}, enc_kernel_sizes{5, 3, 3, 3, 1},
      enc_dilations{1, 2, 3, 4, 1};
  int32_t enc_attention_channels = 128, enc_res2net_scale = 8, enc_se_channels = 128;
};

/// Codec decoder; specification 1.7.
struct CodecDecoderConfig {
  int32_t latent_dim = 0, codebook_dim = 0, codebook_size = 0, decoder_dim = 0;
  int32_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int32_t num_quantizers = 0, num_semantic_quantizers = 1, sliding_window = 0;
  float rms_norm_eps = 0, rope_theta = 0;
  std::vector<int32_t> upsample_rates, upsampling_ratios;
};

/// Codec encoder (a Mimi encoder); only what tensor shapes and later use need.
struct CodecEncoderConfig {
  int32_t num_filters = 0, kernel_size = 0, last_kernel_size = 0, residual_kernel_size = 0;
  int32_t num_residual_layers = 1, dilation_growth_rate = 2, compress = 2;
  std::vector<int32_t> upsampling_ratios;
  int32_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float norm_eps = 0, rope_theta = 0;
  int32_t codebook_size = 0, codebook_dim = 0, vq_hidden_dim = 0, num_quantizers = 0,
          num_semantic_quantizers = 1;
};

struct CodecConfig {
  int32_t input_sample_rate = 0, output_sample_rate = 0, decode_upsample_rate = 0, encode_downsample_rate = 0;
  int32_t encoder_valid_num_quantizers = 0;
  CodecDecoderConfig decoder;
  CodecEncoderConfig encoder;
};

/// generation_config.json with the hard defaults of specification 6.1 for missing keys.
struct GenerationConfig {
  bool do_sample = true, subtalker_dosample = true;
  float temperature = 0.9f, top_p = 1.0f, repetition_penalty = 1.05f;
  float subtalker_temperature = 0.9f, subtalker_top_p = 1.0f;
  int32_t top_k = 50, subtalker_top_k = 50, max_new_tokens = 2048;
  int32_t piece_limit =
      0;  ///< our own key "skald_piece_limit": code points of a piece of long text; 0 = none
};

struct ModelConfig {
  ModelType type = ModelType::base;
  ModelSize size = ModelSize::other;
  std::string size_tag;  ///< as written: "0b6", "1b7"
  int32_t im_start_id = 0, im_end_id = 0, assistant_id = 0, tts_pad_id = 0, tts_bos_id = 0, tts_eos_id = 0;
  TalkerConfig talker;
  DecoderConfig predictor;  ///< vocab_size = codes per group
  std::optional<SpeakerEncoderConfig> speaker_encoder;
  CodecConfig codec;
  GenerationConfig generation;
  bool has_input_projection() const { return predictor.hidden_size != talker.hidden_size; }
};

/// Reads and validates every configuration file of a snapshot folder. Missing keys are errors, never defaults
/// (specification 1.3, "class-default trap"), except where the official loader has a published default.
/// Throws Error(model_not_found) or Error(model_invalid) naming file and key.
ModelConfig load_config(const std::filesystem::path& model_dir);

/// What reading found; a part that is not sound has errors among the faults and values that mean nothing.
struct ConfigReading {
  ModelConfig config;
  bool model_sound = false;  ///< everything that config.json fills
  bool codec_sound = false;  ///< config.codec
};

/// The same without throwing: adds every fault that it finds, warnings included.
ConfigReading read_config(const std::filesystem::path& model_dir, Faults& faults);

/// The codec's configuration alone: `dir` is a speech_tokenizer/ folder or a codec repository.
CodecConfig load_codec_config(const std::filesystem::path& dir);

/// Whether a style instruction reaches the prompt (specification 4.4): not on Base, not on the 0.6B
/// CustomVoice.
bool takes_instruct(const ModelConfig& config);

/// Valid public language names of a model: "auto" first, then every name without "dialect" in it
/// (specification 1.8).
std::vector<std::string> language_names(const ModelConfig& config);

}  // namespace skald::model
