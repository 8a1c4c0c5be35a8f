// Every tensor a configuration implies; specification 1.12 and 1.13.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "model/checkpoint.h"

namespace skald::model {
namespace {

using Shape = std::vector<int64_t>;

class List {
 public:
  void add(std::string name, Shape shape) { tensors_.push_back({std::move(name), std::move(shape)}); }
  void weight(const std::string& name, Shape shape) { add(name + ".weight", std::move(shape)); }
  /// Weight and bias; the bias is as long as the weight's first dimension unless given.
  void layer(const std::string& name, const Shape& shape) { layer(name, shape, shape.front()); }
  void layer(const std::string& name, const Shape& shape, int64_t bias) {
    weight(name, shape);
    add(name + ".bias", {bias});
  }
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ExpectedTensor> tensors_;
};

void decoder_layers(List& list, const std::string& prefix, const DecoderConfig& c) {
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
  const int64_t width = c.hidden_size, inner = c.intermediate_size;
  for (int32_t i = 0; i < c.layers; ++i) {
    const std::string at = fmt::format("{}.layers.{}.", prefix, i);
    list.weight(at + "input_layernorm", {width});
    list.weight(at + "post_attention_layernorm", {width});
    list.weight(at + "self_attn.q_proj", {q, width});
    list.weight(at + "self_attn.k_proj", {kv, width});
    list.weight(at + "self_attn.v_proj", {kv, width});
    list.weight(at + "self_attn.o_proj", {width, q});
    list.weight(at + "self_attn.q_norm", {c.head_dim});
    list.weight(at + "self_attn.k_norm", {c.head_dim});
    list.weight(at + "mlp.gate_proj", {inner, width});
    list.weight(at + "mlp.up_proj", {inner, width});
    list.weight(at + "mlp.down_proj", {width, inner});
  }
  list.weight(prefix + ".norm", {width});
}

void talker(List& list, const TalkerConfig& c) {
  list.weight("talker.model.text_embedding", {c.text_vocab_size, c.text_hidden_size});
  list.weight("talker.model.codec_embedding", {c.vocab_size, c.hidden_size});
  list.weight("talker.codec_head", {c.vocab_size, c.hidden_size});
  list.layer("talker.text_projection.linear_fc1", {c.text_hidden_size, c.text_hidden_size});
  list.layer("talker.text_projection.linear_fc2", {c.hidden_size, c.text_hidden_size});
  decoder_layers(list, "talker.model", c);
}

void predictor(List& list, const ModelConfig& config) {
  const DecoderConfig& c = config.predictor;
  decoder_layers(list, "talker.code_predictor.model", c);
  for (int32_t i = 0; i + 1 < config.talker.num_code_groups; ++i) {
    list.weight(fmt::format("talker.code_predictor.model.codec_embedding.{}", i),
                {c.vocab_size, config.talker.hidden_size});
    list.weight(fmt::format("talker.code_predictor.lm_head.{}", i), {c.vocab_size, c.hidden_size});
  }
  if (config.has_input_projection()) {
    list.layer("talker.code_predictor.small_to_mtp_projection", {c.hidden_size, config.talker.hidden_size});
  }
}

void speaker_encoder(List& list, const SpeakerEncoderConfig& c) {
  const std::string at = "speaker_encoder.";
  const auto& channels = c.enc_channels;
  const auto& kernels = c.enc_kernel_sizes;
  list.layer(at + "blocks.0.conv", {channels[0], c.mel_dim, kernels[0]});
  for (size_t i = 1; i + 1 < channels.size(); ++i) {
    const std::string block = fmt::format("{}blocks.{}.", at, i);
    const int64_t width = channels[i], part = width / c.enc_res2net_scale;
    list.layer(block + "tdnn1.conv", {width, channels[i - 1], 1});
    for (int32_t j = 0; j + 1 < c.enc_res2net_scale; ++j) {
      list.layer(fmt::format("{}res2net_block.blocks.{}.conv", block, j), {part, part, kernels[i]});
    }
    list.layer(block + "tdnn2.conv", {width, width, 1});
    list.layer(block + "se_block.conv1", {c.enc_se_channels, width, 1});
    list.layer(block + "se_block.conv2", {width, c.enc_se_channels, 1});
  }
  const int64_t joined = channels.back();
  list.layer(at + "mfa.conv", {joined, joined, kernels.back()});
  list.layer(at + "asp.tdnn.conv", {c.enc_attention_channels, 3 * joined, 1});
  list.layer(at + "asp.conv", {joined, c.enc_attention_channels, 1});
  list.layer(at + "fc", {c.enc_dim, 2 * joined, 1});
}

void decoder_quantizer(List& list, const CodecDecoderConfig& c) {
  const int64_t width = c.codebook_dim, half = c.codebook_dim / 2;
  const auto part = [&](const std::string& name, int32_t books) {
    list.weight(name + ".input_proj", {half, width, 1});
    list.weight(name + ".output_proj", {width, half, 1});
    for (int32_t i = 0; i < books; ++i) {
      const std::string book = fmt::format("{}.vq.layers.{}._codebook.", name, i);
      list.add(book + "cluster_usage", {c.codebook_size});
      list.add(book + "embedding_sum", {c.codebook_size, half});
    }
  };
  part("decoder.quantizer.rvq_first", c.num_semantic_quantizers);
  part("decoder.quantizer.rvq_rest", c.num_quantizers - c.num_semantic_quantizers);
}

void decoder_transformer(List& list, const CodecDecoderConfig& c) {
  const std::string prefix = "decoder.pre_transformer.";
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
  const int64_t width = c.hidden_size, inner = c.intermediate_size;
  list.layer(prefix + "input_proj", {width, c.latent_dim});
  for (int32_t i = 0; i < c.layers; ++i) {
    const std::string at = fmt::format("{}layers.{}.", prefix, i);
    list.weight(at + "input_layernorm", {width});
    list.weight(at + "post_attention_layernorm", {width});
    list.weight(at + "self_attn.q_proj", {q, width});
    list.weight(at + "self_attn.k_proj", {kv, width});
    list.weight(at + "self_attn.v_proj", {kv, width});
    list.weight(at + "self_attn.o_proj", {width, q});
    list.weight(at + "mlp.gate_proj", {inner, width});
    list.weight(at + "mlp.up_proj", {inner, width});
    list.weight(at + "mlp.down_proj", {width, inner});
    list.add(at + "self_attn_layer_scale.scale", {width});
    list.add(at + "mlp_layer_scale.scale", {width});
  }
  list.weight(prefix + "norm", {width});
  list.layer(prefix + "output_proj", {c.latent_dim, width});
}

void decoder_upsampling(List& list, const CodecDecoderConfig& c) {
  const int64_t width = c.latent_dim;
  for (size_t i = 0; i < c.upsampling_ratios.size(); ++i) {
    const std::string at = fmt::format("decoder.upsample.{}.", i);
    list.layer(at + "0.conv", {width, width, c.upsampling_ratios[i]});
    list.layer(at + "1.dwconv.conv", {width, 1, 7});
    list.layer(at + "1.norm", {width});
    list.layer(at + "1.pwconv1", {4 * width, width});
    list.layer(at + "1.pwconv2", {width, 4 * width});
    list.add(at + "1.gamma", {width});
  }
}

void snake(List& list, const std::string& name, int64_t width) {
  list.add(name + ".alpha", {width});
  list.add(name + ".beta", {width});
}

void decoder_blocks(List& list, const CodecDecoderConfig& c) {
  const std::string prefix = "decoder.decoder.";
  int64_t width = c.decoder_dim;
  list.layer(prefix + "0.conv", {width, c.latent_dim, 7});
  const size_t blocks = c.upsample_rates.size();
  for (size_t i = 0; i < blocks; ++i) {
    const std::string at = fmt::format("{}{}.block.", prefix, i + 1);
    snake(list, at + "0", width);
    // A transposed convolution: its weight is [in, out, kernel], its bias belongs to the output.
    list.layer(at + "1.conv", {width, width / 2, 2 * int64_t{c.upsample_rates[i]}}, width / 2);
    width /= 2;
    for (int unit = 2; unit <= 4; ++unit) {
      const std::string in = fmt::format("{}{}.", at, unit);
      snake(list, in + "act1", width);
      list.layer(in + "conv1.conv", {width, width, 7});
      snake(list, in + "act2", width);
      list.layer(in + "conv2.conv", {width, width, 1});
    }
  }
  snake(list, fmt::format("{}{}", prefix, blocks + 1), width);
  list.layer(fmt::format("{}{}.conv", prefix, blocks + 2), {1, width, 7});
}

void encoder_convolutions(List& list, const CodecEncoderConfig& c) {
  const std::string prefix = "encoder.encoder.layers.";
  int64_t width = c.num_filters;
  int index = 0;
  list.layer(fmt::format("{}{}.conv", prefix, index++), {width, 1, c.kernel_size});
  for (auto ratio = c.upsampling_ratios.rbegin(); ratio != c.upsampling_ratios.rend(); ++ratio) {
    for (int32_t unit = 0; unit < c.num_residual_layers; ++unit, ++index) {
      const std::string at = fmt::format("{}{}.block.", prefix, index);
      const int64_t inner = width / c.compress;
      list.layer(at + "1.conv", {inner, width, c.residual_kernel_size});
      list.layer(at + "3.conv", {width, inner, 1});
    }
    ++index;  // an activation without weights
    list.layer(fmt::format("{}{}.conv", prefix, index++), {2 * width, width, 2 * int64_t{*ratio}});
    width *= 2;
  }
  ++index;
  list.layer(fmt::format("{}{}.conv", prefix, index), {c.hidden_size, width, c.last_kernel_size});
}

void encoder_transformer(List& list, const CodecEncoderConfig& c) {
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
  const int64_t width = c.hidden_size, inner = c.intermediate_size;
  for (int32_t i = 0; i < c.layers; ++i) {
    const std::string at = fmt::format("encoder.encoder_transformer.layers.{}.", i);
    list.layer(at + "input_layernorm", {width});
    list.layer(at + "post_attention_layernorm", {width});
    list.weight(at + "self_attn.q_proj", {q, width});
    list.weight(at + "self_attn.k_proj", {kv, width});
    list.weight(at + "self_attn.v_proj", {kv, width});
    list.weight(at + "self_attn.o_proj", {width, q});
    list.weight(at + "mlp.fc1", {inner, width});
    list.weight(at + "mlp.fc2", {width, inner});
    list.add(at + "self_attn_layer_scale.scale", {width});
    list.add(at + "mlp_layer_scale.scale", {width});
  }
  list.weight("encoder.downsample.conv", {width, width, 4});
}

void encoder_quantizer(List& list, const CodecEncoderConfig& c) {
  const auto part = [&](const std::string& kind, int32_t books) {
    const std::string at = fmt::format("encoder.quantizer.{}_residual_vector_quantizer.", kind);
    list.weight(at + "input_proj", {c.vq_hidden_dim, c.hidden_size, 1});
    list.weight(at + "output_proj", {c.hidden_size, c.vq_hidden_dim, 1});
    for (int32_t i = 0; i < books; ++i) {
      const std::string book = fmt::format("{}layers.{}.codebook.", at, i);
      list.add(book + "cluster_usage", {c.codebook_size});
      list.add(book + "embed_sum", {c.codebook_size, c.codebook_dim});
      list.add(book + "initialized", {1});
    }
  };
  part("semantic", c.num_semantic_quantizers);
  part("acoustic", c.num_quantizers - c.num_semantic_quantizers);
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  List list;
  talker(list, config.talker);
  predictor(list, config);
  // Fine-tuned custom_voice snapshots keep the encoder's configuration but not its tensors.
  if (config.type == ModelType::base && config.speaker_encoder)
    speaker_encoder(list, *config.speaker_encoder);
  return list.take();
}

std::vector<ExpectedTensor> expected_codec_tensors(const CodecConfig& config) {
  List list;
  decoder_quantizer(list, config.decoder);
  list.layer("decoder.pre_conv.conv", {config.decoder.latent_dim, config.decoder.codebook_dim, 3});
  decoder_transformer(list, config.decoder);
  decoder_upsampling(list, config.decoder);
  decoder_blocks(list, config.decoder);
  encoder_convolutions(list, config.encoder);
  encoder_transformer(list, config.encoder);
  encoder_quantizer(list, config.encoder);
  return list.take();
}

}  // namespace skald::model
