// JSON keys of the configuration files into plain structs; specification 1.2 to 1.9.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/config_parts.h"
#include "model/json_fields.h"

namespace skald::model {
namespace {

// Bounds far above every model, low enough that no product of a few of them overflows 64 bits and heads *
// head_dim stays an int32.
constexpr Range kWidth{1, 1 << 16};
constexpr Range kLayers{1, 512};
constexpr Range kHeads{1, 1024};
constexpr Range kHeadDim{2, 1024};
constexpr Range kTextVocabulary{1, 1 << 22};
constexpr Range kCodecVocabulary{1026, 1 << 20};
constexpr Range kCodes{2, 1 << 20};
constexpr Range kPositions{1, 1 << 24};
constexpr Range kGroups{2, 32};
constexpr Range kKernel{1, 64};
constexpr Range kRate{1, 64};
constexpr Range kSampleRate{1, 1 << 20};
constexpr size_t kMostRates = 8;

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// The keys that talker, predictor and codec decoder share. `Stack` has these members under the same names.
template <class Stack>
void read_stack(const Fields& fields, Stack& stack) {
  stack.hidden_size = fields.integer("hidden_size", kWidth);
  stack.intermediate_size = fields.integer("intermediate_size", kWidth);
  stack.layers = fields.integer("num_hidden_layers", kLayers);
  stack.heads = fields.integer("num_attention_heads", kHeads);
  stack.kv_heads = fields.integer("num_key_value_heads", kHeads);
  stack.head_dim = fields.integer("head_dim", kHeadDim);
  stack.rope_theta = fields.number("rope_theta", 1.0, 1e12);
  fields.only_boolean("attention_bias", false, "there are no bias tensors");
}

void read_rope_scaling(const Fields& fields, int32_t head_dim) {
  const Fields scaling = fields.optional_object("rope_scaling");
  if (!scaling.present()) return;
  constexpr std::string_view kReason = "no other scaling is known for this model";
  scaling.only_text("rope_type", "default", kReason);
  scaling.only_text("type", "default", kReason);
  if (!scaling.has("mrope_section")) return;
  int64_t sum = 0;
  for (const int32_t section : scaling.integers("mrope_section", {0, 1 << 16}, 8)) sum += section;
  if (sum != head_dim / 2) {
    scaling.fault("mrope_section",
                  fmt::format("sums to {}, expected half of head_dim, {}", sum, head_dim / 2));
  }
}

void read_decoder_stack(const Fields& fields, DecoderConfig& stack) {
  read_stack(fields, stack);
  stack.rms_norm_eps = fields.number("rms_norm_eps", 1e-12, 0.1);
  stack.max_position_embeddings = fields.integer("max_position_embeddings", kPositions);
  fields.require_text("hidden_act", "silu", "the only one implemented");
  fields.only_boolean("use_sliding_window", false, "attention is over all positions");
  fields.only_null("sliding_window", "attention is over all positions");
  read_rope_scaling(fields, stack.head_dim);
}

void read_predictor(const Fields& fields, DecoderConfig& predictor, int32_t talker_groups) {
  read_decoder_stack(fields, predictor);
  predictor.vocab_size = fields.integer("vocab_size", kCodes);
  const int32_t groups = fields.integer("num_code_groups", kGroups);
  if (groups != talker_groups && groups != 0 && talker_groups != 0) {
    fields.fault("num_code_groups",
                 fmt::format("is {}, but talker_config.num_code_groups is {}", groups, talker_groups));
  }
  const auto types = fields.texts_or_none("layer_types", static_cast<size_t>(kLayers.high));
  if (!types.empty() && types.size() != static_cast<size_t>(predictor.layers)) {
    fields.fault("layer_types",
                 fmt::format("has {} entries, but num_hidden_layers is {}", types.size(), predictor.layers));
  }
  for (const std::string& type : types) {
    if (type == "full_attention") continue;
    fields.fault("layer_types", fmt::format("holds {}, expected only 'full_attention'", quote(type)));
    break;
  }
}

/// A name -> id table under lower-case names, because requests are looked up in lower case.
std::map<std::string, int32_t> read_name_table(const Fields& fields, std::string_view key,
                                               int32_t vocab_size) {
  std::map<std::string, int32_t> out;
  const Range ids{vocab_size >= 1024 ? vocab_size - 1024 : 0, vocab_size > 0 ? vocab_size - 1 : INT32_MAX};
  for (const auto& [name, id] : fields.table(key, ids)) {
    if (name.empty()) fields.fault(key, "has an empty name");
    if (!out.emplace(lower(name), id).second) {
      fields.fault(key, fmt::format("has the name {} twice, apart from upper and lower case", quote(name)));
    }
  }
  return out;
}

void read_speakers(const Fields& fields, ModelType type, TalkerConfig& talker) {
  const size_t faults_before = fields.fault_count();
  talker.speaker_ids = read_name_table(fields, "spk_id", talker.vocab_size);
  const bool empty = talker.speaker_ids.empty() && fields.fault_count() == faults_before;
  if (type == ModelType::custom_voice && empty) {
    fields.fault(
        "spk_id",
        "is empty, so this custom_voice model has no voice at all (a conversion lost its speaker table)");
  }
  std::map<std::string, std::optional<std::string>> dialects;
  for (auto& [name, dialect] : fields.text_or_false_table("spk_is_dialect")) {
    dialects[lower(name)] = dialect ? std::optional(lower(*dialect)) : std::nullopt;
  }
  for (const auto& [name, id] : talker.speaker_ids) {
    const auto found = dialects.find(name);
    if (found == dialects.end()) {
      if (!fields.has("spk_is_dialect")) continue;
      fields.warn("spk_is_dialect", fmt::format("has no entry for speaker {}, taken as false", quote(name)),
                  "add the entry: the official implementation fails without it");
    } else if (found->second) {
      talker.speaker_dialect[name] = *found->second;
      if (!talker.language_ids.contains(*found->second)) {
        fields.fault("spk_is_dialect",
                     fmt::format("gives speaker {} the dialect {}, which codec_language_id does not have",
                                 quote(name), quote(*found->second)));
      }
    }
  }
}

void read_talker(const Fields& fields, ModelConfig& config) {
  TalkerConfig& talker = config.talker;
  read_decoder_stack(fields, talker);
  talker.vocab_size = fields.integer("vocab_size", kCodecVocabulary);
  talker.text_vocab_size = fields.integer("text_vocab_size", kTextVocabulary);
  talker.text_hidden_size = fields.integer("text_hidden_size", kWidth);
  talker.num_code_groups = fields.integer("num_code_groups", kGroups);
  const Range any_id{0, kCodecVocabulary.high};
  talker.codec_pad_id = fields.integer("codec_pad_id", any_id);
  talker.codec_bos_id = fields.integer("codec_bos_id", any_id);
  talker.codec_eos_id = fields.integer("codec_eos_token_id", any_id);
  talker.codec_think_id = fields.integer("codec_think_id", any_id);
  talker.codec_nothink_id = fields.integer("codec_nothink_id", any_id);
  talker.codec_think_bos_id = fields.integer("codec_think_bos_id", any_id);
  talker.codec_think_eos_id = fields.integer("codec_think_eos_id", any_id);
  talker.language_ids = read_name_table(fields, "codec_language_id", talker.vocab_size);
  if (fields.has("codec_language_id") && talker.language_ids.empty()) {
    fields.warn("codec_language_id", "is empty, so only the language 'auto' can be asked for",
                "take config.json from the model's repository again");
  }
  read_speakers(fields, config.type, talker);
  const Fields predictor = fields.object("code_predictor_config");
  if (predictor.present()) read_predictor(predictor, config.predictor, talker.num_code_groups);
}

SpeakerEncoderConfig read_speaker_encoder(const Fields& fields) {
  SpeakerEncoderConfig encoder;
  encoder.enc_dim = fields.integer("enc_dim", kWidth);
  encoder.sample_rate = fields.integer_or("sample_rate", kSampleRate, encoder.sample_rate);
  encoder.mel_dim = fields.integer_or("mel_dim", kWidth, encoder.mel_dim);
  encoder.enc_channels = fields.integers_or("enc_channels", kWidth, kMostRates, encoder.enc_channels);
  encoder.enc_kernel_sizes =
      fields.integers_or("enc_kernel_sizes", kKernel, kMostRates, encoder.enc_kernel_sizes);
  encoder.enc_dilations = fields.integers_or("enc_dilations", kKernel, kMostRates, encoder.enc_dilations);
  encoder.enc_attention_channels =
      fields.integer_or("enc_attention_channels", kWidth, encoder.enc_attention_channels);
  encoder.enc_res2net_scale = fields.integer_or("enc_res2net_scale", {2, 64}, encoder.enc_res2net_scale);
  encoder.enc_se_channels = fields.integer_or("enc_se_channels", kWidth, encoder.enc_se_channels);
  return encoder;
}

/// Nothing when the key is missing or unknown, which is then reported.
std::optional<ModelType> read_type(const Fields& fields) {
  const std::string name = fields.text("tts_model_type");
  for (const ModelType type : {ModelType::base, ModelType::custom_voice, ModelType::voice_design}) {
    if (name == model_type_name(type)) return type;
  }
  if (!name.empty()) {
    fields.fault("tts_model_type",
                 fmt::format("is {}, expected 'base', 'custom_voice' or 'voice_design'", quote(name)));
  }
  return std::nullopt;
}

/// Another architecture under the same file names; nothing else of such a file is worth reporting.
bool is_qwen3_tts(const Fields& fields, const std::string& file, Faults& faults) {
  const auto refuse = [&](std::string what, std::string fix) {
    faults.push_back({ErrorCode::model_invalid, std::move(what), std::move(fix)});
    return false;
  };
  const std::string model_type = fields.text("model_type");
  if (model_type == "qwen3_tts_tokenizer_12hz") {
    return refuse(file + " describes the codec alone, not a model that speaks",
                  "name the folder of a Qwen3-TTS 12 Hz model, which holds the codec in speech_tokenizer");
  }
  if (!model_type.empty() && model_type != "qwen3_tts") {
    return refuse(fmt::format("{} describes a model of type {}, not 'qwen3_tts'", file, quote(model_type)),
                  "name the folder of a Qwen3-TTS 12 Hz model");
  }
  const std::string codec = fields.text("tokenizer_type");
  if (!codec.empty() && codec != "qwen3_tts_tokenizer_12hz") {
    return refuse(fmt::format("{} names the codec {}, not 'qwen3_tts_tokenizer_12hz'", file, quote(codec)),
                  "use one of the 12 Hz models");
  }
  return true;
}

void read_codec_decoder(const Fields& fields, CodecDecoderConfig& decoder) {
  read_stack(fields, decoder);
  decoder.rms_norm_eps = fields.number("rms_norm_eps", 1e-12, 0.1);
  decoder.latent_dim = fields.integer("latent_dim", kWidth);
  decoder.codebook_dim = fields.integer("codebook_dim", kWidth);
  decoder.codebook_size = fields.integer("codebook_size", kCodes);
  decoder.decoder_dim = fields.integer("decoder_dim", kWidth);
  decoder.num_quantizers = fields.integer("num_quantizers", kGroups);
  decoder.num_semantic_quantizers = fields.integer_or("num_semantic_quantizers", {1, 1}, 1);
  decoder.sliding_window = fields.integer("sliding_window", kPositions);
  decoder.upsample_rates = fields.integers("upsample_rates", kRate, kMostRates);
  decoder.upsampling_ratios = fields.integers("upsampling_ratios", kRate, kMostRates);
  fields.require_text("hidden_act", "silu", "the only one implemented");
}

void read_codec_encoder(const Fields& fields, CodecEncoderConfig& encoder) {
  read_stack(fields, encoder);
  encoder.norm_eps = fields.number("norm_eps", 1e-12, 0.1);
  encoder.num_filters = fields.integer("num_filters", kWidth);
  encoder.kernel_size = fields.integer("kernel_size", kKernel);
  encoder.last_kernel_size = fields.integer("last_kernel_size", kKernel);
  encoder.residual_kernel_size = fields.integer("residual_kernel_size", kKernel);
  encoder.num_residual_layers = fields.integer_or("num_residual_layers", {1, 16}, 1);
  encoder.dilation_growth_rate = fields.integer_or("dilation_growth_rate", {1, 16}, 2);
  encoder.compress = fields.integer_or("compress", {1, 64}, 2);
  encoder.upsampling_ratios = fields.integers("upsampling_ratios", kRate, kMostRates);
  encoder.codebook_size = fields.integer("codebook_size", kCodes);
  encoder.codebook_dim = fields.integer("codebook_dim", kWidth);
  encoder.vq_hidden_dim = fields.integer("vector_quantization_hidden_dimension", kWidth);
  encoder.num_quantizers = fields.integer("num_quantizers", {2, 256});
  encoder.num_semantic_quantizers = fields.integer_or("num_semantic_quantizers", {1, 1}, 1);
  constexpr std::string_view kReason = "the only one implemented";
  fields.only_text("hidden_act", "gelu", kReason);
  fields.only_text("pad_mode", "constant", kReason);
  fields.only_boolean("use_causal_conv", true, kReason);
  fields.only_boolean("use_conv_shortcut", false, kReason);
  fields.integer_or("audio_channels", {1, 1}, 1);
}

}  // namespace

void parse_model_config(std::string_view text, const std::string& file, ModelConfig& config, Faults& faults) {
  const Document document = parse_document(text, file, faults);
  if (!document) return;
  const Fields fields(document.get(), file, "", faults);
  if (!is_qwen3_tts(fields, file, faults)) return;
  const std::optional<ModelType> type = read_type(fields);
  config.type = type.value_or(ModelType::base);
  config.size_tag = fields.text("tts_model_size");
  config.size = config.size_tag == "0b6"   ? ModelSize::size_0b6
                : config.size_tag == "1b7" ? ModelSize::size_1b7
                                           : ModelSize::other;
  const Range any_id{0, kTextVocabulary.high};
  config.im_start_id = fields.integer("im_start_token_id", any_id);
  config.im_end_id = fields.integer("im_end_token_id", any_id);
  config.assistant_id = fields.integer("assistant_token_id", any_id);
  config.tts_pad_id = fields.integer("tts_pad_token_id", any_id);
  config.tts_bos_id = fields.integer("tts_bos_token_id", any_id);
  config.tts_eos_id = fields.integer("tts_eos_token_id", any_id);
  const Fields talker = fields.object("talker_config");
  if (talker.present()) read_talker(talker, config);
  const Fields encoder = type == ModelType::base ? fields.object("speaker_encoder_config")
                                                 : fields.optional_object("speaker_encoder_config");
  if (encoder.present()) config.speaker_encoder = read_speaker_encoder(encoder);
}

void parse_codec_config(std::string_view text, const std::string& file, CodecConfig& config, Faults& faults) {
  const Document document = parse_document(text, file, faults);
  if (!document) return;
  const Fields fields(document.get(), file, "", faults);
  const std::string type = fields.text("model_type");
  if (!type.empty() && type != "qwen3_tts_tokenizer_12hz") {
    faults.push_back(
        {ErrorCode::model_invalid,
         fmt::format("{} describes a codec of type {}, not 'qwen3_tts_tokenizer_12hz'", file, quote(type)),
         "use the speech_tokenizer folder of a 12 Hz model"});
    return;
  }
  config.input_sample_rate = fields.integer("input_sample_rate", kSampleRate);
  config.output_sample_rate = fields.integer("output_sample_rate", kSampleRate);
  config.decode_upsample_rate = fields.integer("decode_upsample_rate", kSampleRate);
  config.encode_downsample_rate = fields.integer("encode_downsample_rate", kSampleRate);
  config.encoder_valid_num_quantizers = fields.integer("encoder_valid_num_quantizers", kGroups);
  const Fields decoder = fields.object("decoder_config");
  if (decoder.present()) read_codec_decoder(decoder, config.decoder);
  const Fields encoder = fields.object("encoder_config");
  if (encoder.present()) read_codec_encoder(encoder, config.encoder);
}

void parse_generation_config(std::string_view text, const std::string& file, GenerationConfig& config,
                             Faults& faults) {
  const Document document = parse_document(text, file, faults);
  if (!document) return;
  const Fields fields(document.get(), file, "", faults);
  constexpr Range kTopK{0, 1 << 22};
  config.do_sample = fields.boolean_or("do_sample", config.do_sample);
  config.temperature = fields.number_or("temperature", 1e-6, 1e6, config.temperature);
  config.top_p = fields.number_or("top_p", 1e-6, 1.0, config.top_p);
  config.top_k = fields.integer_or("top_k", kTopK, config.top_k);
  config.repetition_penalty = fields.number_or("repetition_penalty", 1e-6, 1e6, config.repetition_penalty);
  config.subtalker_dosample = fields.boolean_or("subtalker_dosample", config.subtalker_dosample);
  config.subtalker_temperature =
      fields.number_or("subtalker_temperature", 1e-6, 1e6, config.subtalker_temperature);
  config.subtalker_top_p = fields.number_or("subtalker_top_p", 1e-6, 1.0, config.subtalker_top_p);
  config.subtalker_top_k = fields.integer_or("subtalker_top_k", kTopK, config.subtalker_top_k);
  config.max_new_tokens = fields.integer_or("max_new_tokens", {2, 1 << 24}, config.max_new_tokens);
  config.piece_limit = fields.integer_or("skald_piece_limit", {20, 1000}, config.piece_limit);
}

}  // namespace skald::model
