// Codec encoder: loading, recording, running. Specification section 9.
#include "model/codec_encoder.h"

#include <algorithm>
#include <utility>

#include "skald/error.h"

namespace skald::model {

using backend::Activation;
using backend::Buffer;
using backend::Dtype;
using backend::Lanes;
using backend::PaddedConv;
using backend::WeightRole;

namespace {

constexpr int32_t kDownsample = 2;  // stride of the last convolution, from 25 to 12.5 Hz

StackShape shape_of(const CodecEncoderConfig& c) {
  return {.hidden = c.hidden_size,
          .intermediate = c.intermediate_size,
          .layers = c.layers,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .epsilon = c.norm_eps,
          .theta = c.rope_theta,
          .window = CodecEncoder::kWindow,
          .head_norms = false,
          .layer_scales = true,
          .encoder = true};
}

/// Rows per frame after each strided convolution, from the samples of a frame down to 1.
std::vector<int32_t> rates_of(const CodecConfig& config) {
  std::vector<int32_t> rates{config.encode_downsample_rate};
  const auto& ratios = config.encoder.upsampling_ratios;
  for (auto ratio = ratios.rbegin(); ratio != ratios.rend(); ++ratio) rates.push_back(rates.back() / *ratio);
  rates.push_back(rates.back() / kDownsample);
  return rates;
}

/// Values of one frame at the level that has most.
int64_t widest_level(const CodecConfig& config) {
  const std::vector<int32_t> rates = rates_of(config);
  int64_t channels = config.encoder.num_filters, widest = 0;
  for (size_t level = 0; level + 1 < rates.size(); ++level, channels *= 2)
    widest = std::max(widest, rates[level] * channels);
  return widest;
}

}  // namespace

CodecEncoder::CodecEncoder(backend::Backend& device, const WeightLoader& loader, const CodecConfig& config,
                           const std::vector<int32_t>& chunks)
    : device_(device),
      config_(config.encoder),
      groups_(config.encoder_valid_num_quantizers),
      max_frames_(chunks.back()),
      rates_(rates_of(config)) {
  const WeightLoader encoder = loader.exactly();  // the codes of a clip do not depend on how others compute
  load_convolutions(encoder);
  // A whole chunk is stored before its first row looks back over the window.
  transformer_ =
      std::make_unique<DecoderStack>(device, encoder.under("encoder_transformer"), shape_of(config_),
                                     "codec_encoder.transformer", 1, kWindow - 1 + max_frames_ * kDownsample);
  load_quantizer(encoder.under("quantizer"));
  const int64_t widest = widest_level(config);
  if (widest > INT32_MAX / max_frames_)
    throw Error(
        ErrorCode::model_invalid,
        "the codec encoder's widest stage is larger than that of any real model; check its config.json");
  allocate(static_cast<int32_t>(widest));
  programs_ = record_sizes(chunks, [&](int32_t frames) {
    return device.record("codec_encoder x" + std::to_string(frames),
                         [&](backend::Ops& ops) { record(ops, frames); });
  });
  program_ = programs_.back().program;
}

CodecEncoder::Convolution CodecEncoder::load_conv(const WeightLoader& loader, const std::string& name,
                                                  const Convolution& shape, bool bias) {
  Convolution conv = shape;
  conv.weight = loader.load(WeightRole::convolution, name + ".weight", {conv.out, conv.in, conv.kernel});
  if (bias) conv.bias = loader.vector(name + ".bias", conv.out);
  const int32_t history = (conv.kernel - 1) * conv.dilation + 1 - conv.stride;
  if (history > 0) {
    conv.state = device_.allocate("codec_encoder." + name + ".state", Dtype::f32, history, conv.in);
    states_.push_back(conv.state);
  }
  return conv;
}

void CodecEncoder::load_convolutions(const WeightLoader& loader) {
  const CodecEncoderConfig& c = config_;
  const WeightLoader layers = loader.under("encoder.layers");
  int32_t channels = c.num_filters, index = 0;
  entry_ = load_conv(layers, "0.conv", {.in = 1, .out = channels, .kernel = c.kernel_size});
  for (auto ratio = c.upsampling_ratios.rbegin(); ratio != c.upsampling_ratios.rend(); ++ratio) {
    Block block;
    for (int32_t unit = 0, dilation = 1; unit < c.num_residual_layers;
         ++unit, dilation *= c.dilation_growth_rate) {
      const WeightLoader at = layers.under(std::to_string(++index) + ".block");
      const int32_t inner = channels / c.compress;
      const Convolution wide{
          .in = channels, .out = inner, .kernel = c.residual_kernel_size, .dilation = dilation};
      block.residuals.push_back({.conv1 = load_conv(at, "1.conv", wide),
                                 .conv2 = load_conv(at, "3.conv", {.in = inner, .out = channels})});
    }
    index += 2;  // an activation without weights stands between
    block.down = load_conv(layers, std::to_string(index) + ".conv",
                           {.in = channels, .out = 2 * channels, .kernel = 2 * *ratio, .stride = *ratio});
    blocks_.push_back(std::move(block));
    channels *= 2;
  }
  exit_ = load_conv(layers, std::to_string(index + 2) + ".conv",
                    {.in = channels, .out = c.hidden_size, .kernel = c.last_kernel_size});
  downsample_ = load_conv(
      loader, "downsample.conv",
      {.in = c.hidden_size, .out = c.hidden_size, .kernel = 2 * kDownsample, .stride = kDownsample}, false);
}

void CodecEncoder::load_quantizer(const WeightLoader& loader) {
  const CodecEncoderConfig& c = config_;
  const WeightLoader semantic = loader.under("semantic_residual_vector_quantizer"),
                     acoustic = loader.under("acoustic_residual_vector_quantizer");
  semantic_projection_ = semantic.pointwise("input_proj.weight", c.codebook_dim, c.hidden_size);
  acoustic_projection_ = acoustic.pointwise("input_proj.weight", c.codebook_dim, c.hidden_size);
  codebooks_.reserve(static_cast<size_t>(groups_));
  for (int32_t g = 0; g < groups_; ++g) {
    const bool first = g < c.num_semantic_quantizers;
    const int32_t layer = first ? g : g - c.num_semantic_quantizers;
    codebooks_.push_back(
        load_codebook((first ? semantic : acoustic).under("layers." + std::to_string(layer) + ".codebook")));
  }
}

CodecEncoder::Codebook CodecEncoder::load_codebook(const WeightLoader& loader) const {
  const int32_t size = config_.codebook_size, width = config_.codebook_dim;
  const std::vector<float> usage = loader.floats("cluster_usage", {size});
  Codebook book{
      .entries = loader.floats("embed_sum", {size, width}), .table = {}, .matrix = {}, .half_square = {}};
  std::vector<float> half_square;
  for (int32_t i = 0; i < size; ++i) {
    const float divisor = std::max(usage[static_cast<size_t>(i)], 1e-5f);
    double square = 0;
    for (int32_t j = 0; j < width; ++j) {
      float& x = book.entries[static_cast<size_t>(i) * width + j];
      x /= divisor;
      square += static_cast<double>(x) * x;
    }
    half_square.push_back(static_cast<float>(-square / 2));
  }
  book.table = loader.derived(WeightRole::table, "codebook", book.entries, {size, width});
  book.matrix = loader.derived(WeightRole::matrix, "codebook", book.entries, {size, width});
  book.half_square = loader.derived(WeightRole::vector, "half_square", half_square, {size});
  return book;
}

void CodecEncoder::allocate(int32_t widest) {
  const int32_t n = max_frames_, rows = n * kDownsample;
  const auto area = [&](const char* label, int32_t width) {
    return device_.allocate(label, Dtype::f32, n, width);
  };
  a_ = area("codec_encoder.a", widest);
  b_ = area("codec_encoder.b", widest);
  samples_ = device_.allocate("codec_encoder.samples", Dtype::f32, int64_t{n} * rates_[0], 1);
  stack_ = StackBuffers::allocate(device_, "codec_encoder.transformer", transformer_->shape(), rows);
  latent_ = area("codec_encoder.latent", config_.hidden_size);
  projected_ = area("codec_encoder.projected", config_.codebook_dim);
  codes_ = device_.allocate("codec_encoder.codes", Dtype::i32, n, groups_);
  lane_slot_ = device_.allocate("codec_encoder.lane_slot", Dtype::i32, 1, 1);
  counts_ = device_.allocate("codec_encoder.counts", Dtype::i32, static_cast<int64_t>(rates_.size()), 1);
  position_ = device_.allocate("codec_encoder.position", Dtype::i32, 1, 1);
}

Lanes CodecEncoder::lanes(size_t level, int32_t frames) const {
  return {.lanes = 1,
          .rows = frames * rates_[level],
          .slot = lane_slot_,
          .count = counts_.row_range(static_cast<int32_t>(level), 1),
          .start = position_};
}

void CodecEncoder::record_conv(backend::Ops& ops, const Convolution& conv, Activation before, const Buffer& x,
                               const Buffer& out, const Lanes& lanes, const Buffer& residual) const {
  ops.padded_conv({.x = x,
                   .before = before,
                   .weight = conv.weight,
                   .bias = conv.bias,
                   .kernel = conv.kernel,
                   .dilation = conv.dilation,
                   .stride = conv.stride,
                   .state = conv.state,
                   .residual = residual,
                   .out = out,
                   .lanes = lanes});
}

void CodecEncoder::record(backend::Ops& ops, int32_t frames) const {
  const Lanes rows = lanes(rates_.size() - 2, frames);  // of the transformer
  record_blocks(ops, stack_.x, frames);
  transformer_->record_rope(ops, stack_.rope, rows);
  transformer_->record_layers(ops, stack_, rows);
  ops.label("codec_encoder.downsample");
  ops.padded_conv({.x = stack_.x,
                   .weight = downsample_.weight,
                   .kernel = downsample_.kernel,
                   .stride = downsample_.stride,
                   .padding = PaddedConv::replicate,
                   .state = downsample_.state,
                   .out = latent_,
                   .lanes = rows});
  ops.advance({.counter = position_, .lanes = rows});
  record_quantizer(ops, lanes(rates_.size() - 1, frames));
}

/// The convolutions down to 25 Hz, into `out`.
void CodecEncoder::record_blocks(backend::Ops& ops, const Buffer& out, int32_t frames) const {
  Buffer a = a_, b = b_;
  const auto view = [&](const Buffer& area, size_t level, int32_t width) {
    return area.reshaped(max_frames_ * rates_[level], width);
  };
  ops.label("codec_encoder.entry");
  record_conv(ops, entry_, Activation::none, samples_, view(a, 0, entry_.out), lanes(0, frames));
  for (size_t level = 0; level < blocks_.size(); ++level) {
    const Block& block = blocks_[level];
    const Lanes rows = lanes(level, frames);
    ops.label("codec_encoder.block." + std::to_string(level));
    for (const Residual& unit : block.residuals) {
      const Buffer x = view(a, level, unit.conv1.in), inner = view(b, level, unit.conv1.out);
      record_conv(ops, unit.conv1, Activation::elu, x, inner, rows);
      record_conv(ops, unit.conv2, Activation::elu, inner, x, rows, x);
    }
    record_conv(ops, block.down, Activation::elu, view(a, level, block.down.in),
                view(b, level + 1, block.down.out), rows);
    std::swap(a, b);
  }
  ops.label("codec_encoder.exit");
  record_conv(ops, exit_, Activation::elu, view(a, blocks_.size(), exit_.in), out,
              lanes(blocks_.size(), frames));
}

/// Both parts quantise the same latent; the acoustic one goes on with what each codeword leaves.
void CodecEncoder::record_quantizer(backend::Ops& ops, const Lanes& frames) const {
  ops.label("codec_encoder.quantizer");
  for (int32_t g = 0; g < groups_; ++g) {
    const bool first = g == 0, acoustic = g == config_.num_semantic_quantizers;
    if (first || acoustic)
      ops.linear({.x = latent_,
                  .weight = first ? semantic_projection_ : acoustic_projection_,
                  .out = projected_,
                  .lanes = frames});
    const Codebook& book = codebooks_[static_cast<size_t>(g)];
    ops.nearest_code({.x = projected_,
                      .entries = book.table,
                      .matrix = book.matrix,
                      .half_square = book.half_square,
                      .codes = codes_.columns(g, 1),
                      .remainder = g + 1 < groups_ ? projected_ : Buffer{},
                      .lanes = frames});
  }
}

void CodecEncoder::reset() {
  for (const Buffer& state : states_) device_.zero(state);
  device_.zero(position_);
  ended_ = false;
}

void CodecEncoder::stage(std::span<const float> samples) {
  const auto count = static_cast<int32_t>(samples.size());
  if (ended_ || samples.empty() || samples.size() > static_cast<size_t>(max_frames_) * rates_[0])
    throw Error(ErrorCode::internal,
                "codec encode: nothing, too much, or more samples after the end of a stream");
  std::vector<int32_t> counts;
  for (const int32_t rate : rates_) {
    const int32_t step = rates_[0] / rate;
    counts.push_back((count + step - 1) / step);
  }
  ended_ = count % rates_[0] != 0;
  staged_frames_ = counts.back();
  program_ = smallest_for(programs_, staged_frames_);
  device_.write(counts_, std::as_bytes(std::span(counts)));
  device_.write(samples_.row_range(0, count), std::as_bytes(samples));
}

void CodecEncoder::read_codes(std::vector<int32_t>& codes) const {
  const size_t done = codes.size(), count = static_cast<size_t>(staged_frames_) * groups_;
  codes.resize(done + count);
  device_.read(codes_.row_range(0, staged_frames_), std::as_writable_bytes(std::span(codes).subspan(done)));
}

void CodecEncoder::encode(std::span<const float> samples, std::vector<int32_t>& codes) {
  const size_t chunk = static_cast<size_t>(max_frames_) * rates_[0];
  while (!samples.empty()) {
    const auto part = samples.first(std::min(chunk, samples.size()));
    stage(part);
    device_.run(program_);
    read_codes(codes);
    samples = samples.subspan(part.size());
  }
}

uint64_t CodecEncoder::weight_bytes(const CodecConfig& config) {
  uint64_t values = 0;
  for (const ExpectedTensor& t : expected_codec_tensors(config)) {
    if (t.name.rfind("encoder.", 0) != 0 || t.name.find(".codebook.") != std::string::npos) continue;
    uint64_t n = 1;
    for (const int64_t d : t.shape) n *= static_cast<uint64_t>(d);
    values += n;
  }
  const CodecEncoderConfig& c = config.encoder;
  values += 2 * uint64_t(config.encoder_valid_num_quantizers) * c.codebook_size * c.codebook_dim;
  return values * sizeof(float);
}

uint64_t CodecEncoder::buffer_bytes(const CodecConfig& config, int32_t max_frames) {
  const CodecEncoderConfig& c = config.encoder;
  return sizeof(float) * (2 * uint64_t(widest_level(config)) * max_frames +
                          2 * uint64_t(c.layers) * kWindow * c.kv_heads * c.head_dim);
}

}  // namespace skald::model
