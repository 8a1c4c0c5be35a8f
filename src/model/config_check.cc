// Contradictions between values of a configuration; specification 13.1.
#include <fmt/format.h>

#include <array>
#include <string_view>

#include "model/config_parts.h"

namespace skald::model {
namespace {

constexpr int32_t kSampleRate = 24000;
constexpr int32_t kEncoderDownsample = 2;  // stride of the convolution behind the encoder's transformer

/// Adds faults of one file.
class Checker {
 public:
  Checker(const std::string& file, Faults& faults) : file_(file), faults_(faults) {}

  void that(bool holds, const std::string& otherwise) {
    if (holds) return;
    faults_.push_back({ErrorCode::model_invalid, file_ + ": " + otherwise,
                       "take the configuration files of one and the same model repository"});
  }
  void equal(std::string_view key, int64_t value, std::string_view other_key, int64_t other) {
    that(value == other, fmt::format("{} is {}, but {} is {}", key, value, other_key, other));
  }

 private:
  const std::string& file_;
  Faults& faults_;
};

void check_heads(Checker& check, std::string_view where, int32_t heads, int32_t kv_heads, int32_t head_dim) {
  check.that(heads % kv_heads == 0, fmt::format("{}.num_attention_heads is {}, not a multiple of "
                                                "num_key_value_heads {}",
                                                where, heads, kv_heads));
  check.that(head_dim % 2 == 0, fmt::format("{}.head_dim is {}, which is odd", where, head_dim));
}

struct NamedId {
  std::string_view name;
  int32_t id;
};

/// Ids of the talker's control area: inside it, distinct, and no name of a table sits on a control id.
void check_codec_ids(Checker& check, const TalkerConfig& talker) {
  const std::array<NamedId, 7> special{{{"codec_pad_id", talker.codec_pad_id},
                                        {"codec_bos_id", talker.codec_bos_id},
                                        {"codec_eos_token_id", talker.codec_eos_id},
                                        {"codec_think_id", talker.codec_think_id},
                                        {"codec_nothink_id", talker.codec_nothink_id},
                                        {"codec_think_bos_id", talker.codec_think_bos_id},
                                        {"codec_think_eos_id", talker.codec_think_eos_id}}};
  std::map<int32_t, std::string> taken;
  for (const auto& [name, id] : special) {
    check.that(id >= talker.codes() && id < talker.vocab_size,
               fmt::format("talker_config.{} is {}, expected {} to {} (the last 1024 ids of vocab_size {})",
                           name, id, talker.codes(), talker.vocab_size - 1, talker.vocab_size));
    const auto [at, fresh] = taken.emplace(id, name);
    check.that(fresh, fmt::format("talker_config.{} and {} are both {}", at->second, name, id));
  }
  // Two names of one table may share an id (an alias), names of different kinds may not.
  std::map<int32_t, std::string> languages;
  for (const auto& [name, id] : talker.language_ids) {
    const auto at = taken.find(id);
    check.that(at == taken.end(),
               fmt::format("talker_config.codec_language_id gives {} the id {}, which is {}", quote(name), id,
                           at == taken.end() ? "" : at->second));
    languages.emplace(id, "the language " + quote(name));
  }
  taken.merge(languages);
  for (const auto& [name, id] : talker.speaker_ids) {
    const auto at = taken.find(id);
    check.that(at == taken.end(), fmt::format("talker_config.spk_id gives {} the id {}, which is {}",
                                              quote(name), id, at == taken.end() ? "" : at->second));
  }
}

void check_text_ids(Checker& check, const ModelConfig& config) {
  const std::array<NamedId, 6> ids{{{"im_start_token_id", config.im_start_id},
                                    {"im_end_token_id", config.im_end_id},
                                    {"assistant_token_id", config.assistant_id},
                                    {"tts_pad_token_id", config.tts_pad_id},
                                    {"tts_bos_token_id", config.tts_bos_id},
                                    {"tts_eos_token_id", config.tts_eos_id}}};
  std::map<int32_t, std::string_view> taken;
  for (const auto& [name, id] : ids) {
    check.that(id < config.talker.text_vocab_size,
               fmt::format("{} is {}, beyond talker_config.text_vocab_size {}", name, id,
                           config.talker.text_vocab_size));
    const auto [at, fresh] = taken.emplace(id, name);
    check.that(fresh, fmt::format("{} and {} are both {}", at->second, name, id));
  }
}

void check_speaker_encoder(Checker& check, const SpeakerEncoderConfig& encoder, int32_t talker_width) {
  const auto& channels = encoder.enc_channels;
  check.equal("speaker_encoder_config.enc_dim", encoder.enc_dim, "talker_config.hidden_size", talker_width);
  check.equal("speaker_encoder_config.sample_rate", encoder.sample_rate, "the rate of these models",
              kSampleRate);
  check.equal("speaker_encoder_config.mel_dim", encoder.mel_dim, "the number of mel bands of these models",
              128);
  const size_t blocks = channels.size();
  check.that(
      blocks >= 3 && encoder.enc_kernel_sizes.size() == blocks && encoder.enc_dilations.size() == blocks,
      fmt::format(
          "speaker_encoder_config.enc_channels, enc_kernel_sizes and enc_dilations have {}, {} and {} "
          "entries, expected the same number, at least 3",
          blocks, encoder.enc_kernel_sizes.size(), encoder.enc_dilations.size()));
  if (blocks < 3) return;
  for (size_t i = 1; i + 1 < blocks; ++i) {
    check.that(channels[i] == channels[0],
               fmt::format("speaker_encoder_config.enc_channels[{}] is {}, expected {} as the first", i,
                           channels[i], channels[0]));
  }
  check.that(
      channels[0] % encoder.enc_res2net_scale == 0,
      fmt::format("speaker_encoder_config.enc_channels[0] is {}, not a multiple of enc_res2net_scale {}",
                  channels[0], encoder.enc_res2net_scale));
  const int64_t joined = static_cast<int64_t>(blocks - 2) * channels[0];
  check.that(channels.back() == joined,
             fmt::format("speaker_encoder_config.enc_channels ends with {}, expected {} (the joined blocks)",
                         channels.back(), joined));
}

int64_t product(const std::vector<int32_t>& factors) {
  int64_t out = 1;
  for (const int32_t factor : factors) out *= factor;  // at most 8 factors of at most 64
  return out;
}

void check_codec_decoder(Checker& check, const CodecConfig& config) {
  const CodecDecoderConfig& decoder = config.decoder;
  check_heads(check, "decoder_config", decoder.heads, decoder.kv_heads, decoder.head_dim);
  check.that(decoder.codebook_dim % 2 == 0,
             fmt::format("decoder_config.codebook_dim is {}, which is odd", decoder.codebook_dim));
  const auto halvings = decoder.upsample_rates.size();
  check.that(
      decoder.decoder_dim % (int64_t{1} << halvings) == 0,
      fmt::format("decoder_config.decoder_dim is {}, which cannot be halved {} times (once for each of "
                  "upsample_rates)",
                  decoder.decoder_dim, halvings));
  // Multiplied apart: each product is below 2^48, a hostile pair of them would overflow together.
  const int64_t rates = product(decoder.upsample_rates), ratios = product(decoder.upsampling_ratios);
  check.that(config.decode_upsample_rate % rates == 0 && config.decode_upsample_rate / rates == ratios,
             fmt::format("decode_upsample_rate is {}, but the products of decoder_config.upsample_rates and "
                         "upsampling_ratios are {} and {}",
                         config.decode_upsample_rate, rates, ratios));
  check.equal("decoder_config.num_quantizers", decoder.num_quantizers, "encoder_valid_num_quantizers",
              config.encoder_valid_num_quantizers);
}

void check_codec_encoder(Checker& check, const CodecConfig& config) {
  const CodecEncoderConfig& encoder = config.encoder;
  check_heads(check, "encoder_config", encoder.heads, encoder.kv_heads, encoder.head_dim);
  check.equal("encode_downsample_rate", config.encode_downsample_rate,
              "twice the product of encoder_config.upsampling_ratios",
              kEncoderDownsample * product(encoder.upsampling_ratios));
  check.equal("encoder_config.vector_quantization_hidden_dimension", encoder.vq_hidden_dim,
              "encoder_config.codebook_dim", encoder.codebook_dim);
  check.that(
      encoder.codebook_dim != encoder.hidden_size,
      fmt::format("encoder_config.codebook_dim and hidden_size are both {}, which would leave no input "
                  "projection",
                  encoder.hidden_size));
  check.that(encoder.num_quantizers >= config.encoder_valid_num_quantizers,
             fmt::format("encoder_config.num_quantizers is {}, less than encoder_valid_num_quantizers {}",
                         encoder.num_quantizers, config.encoder_valid_num_quantizers));
  const int64_t widest = static_cast<int64_t>(encoder.num_filters) << encoder.upsampling_ratios.size();
  check.that(
      widest <= 1 << 20 && encoder.num_filters % encoder.compress == 0,
      fmt::format(
          "encoder_config.num_filters is {}, too many for {} doublings or not a multiple of compress {}",
          encoder.num_filters, encoder.upsampling_ratios.size(), encoder.compress));
  check.equal("encoder_config.codebook_size", encoder.codebook_size, "decoder_config.codebook_size",
              config.decoder.codebook_size);
}

}  // namespace

void check_model_config(const ModelConfig& config, const std::string& file, Faults& faults) {
  Checker check(file, faults);
  const TalkerConfig& talker = config.talker;
  const DecoderConfig& predictor = config.predictor;
  check_heads(check, "talker_config", talker.heads, talker.kv_heads, talker.head_dim);
  check_heads(check, "talker_config.code_predictor_config", predictor.heads, predictor.kv_heads,
              predictor.head_dim);
  check.that(talker.codes() == predictor.vocab_size,
             fmt::format("talker_config.vocab_size is {}, expected 1024 more than "
                         "talker_config.code_predictor_config.vocab_size {}",
                         talker.vocab_size, predictor.vocab_size));
  check_codec_ids(check, talker);
  check_text_ids(check, config);
  if (config.speaker_encoder) check_speaker_encoder(check, *config.speaker_encoder, talker.hidden_size);
}

void check_codec_config(const CodecConfig& config, const std::string& file, Faults& faults) {
  Checker check(file, faults);
  check.equal("output_sample_rate", config.output_sample_rate, "the rate of these models", kSampleRate);
  check.equal("input_sample_rate", config.input_sample_rate, "the rate of these models", kSampleRate);
  check_codec_decoder(check, config);
  check_codec_encoder(check, config);
  check.equal("encode_downsample_rate", config.encode_downsample_rate, "decode_upsample_rate",
              config.decode_upsample_rate);
}

void check_model_against_codec(const ModelConfig& config, const std::string& file,
                               const std::string& codec_file, Faults& faults) {
  Checker check(file, faults);
  check.that(config.talker.num_code_groups == config.codec.decoder.num_quantizers,
             fmt::format("talker_config.num_code_groups is {}, but decoder_config.num_quantizers of {} is {}",
                         config.talker.num_code_groups, codec_file, config.codec.decoder.num_quantizers));
  check.that(
      config.predictor.vocab_size == config.codec.decoder.codebook_size,
      fmt::format(
          "talker_config.code_predictor_config.vocab_size is {}, but decoder_config.codebook_size of {} "
          "is {}",
          config.predictor.vocab_size, codec_file, config.codec.decoder.codebook_size));
}

}  // namespace skald::model
