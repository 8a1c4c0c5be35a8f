// Codec decoder: loading, state and running. The recorded stages are in codec_decoder_stages.cc.
#include "model/codec_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "skald/error.h"

namespace skald::model {

using backend::Buffer;
using backend::Dtype;
using backend::WeightRole;

namespace {

/// The codec works on a queue of its own, beside the frames that follow the ones it decodes.
class OnCodecQueue {
 public:
  explicit OnCodecQueue(backend::Backend& device) : device_(device) { device.select(backend::Queue::codec); }
  OnCodecQueue(const OnCodecQueue&) = delete;
  OnCodecQueue& operator=(const OnCodecQueue&) = delete;
  ~OnCodecQueue() { device_.select(backend::Queue::frames); }

 private:
  backend::Backend& device_;
};

}  // namespace

CodecDecoder::CodecDecoder(backend::Backend& device, const WeightLoader& decoder, const CodecConfig& config,
                           int32_t slots, int32_t max_frames)
    : device_(device),
      config_(config.decoder),
      slots_(slots),
      samples_per_frame_(config.decode_upsample_rate),
      groups_(config.decoder.num_quantizers) {
  const CodecDecoderConfig& c = config_;
  // Convolutions are nearly all of the work; matrices have nothing to win from rounding.
  const WeightLoader exact = decoder.exactly();
  load_quantizer(exact.under("quantizer"));
  pre_conv_ = load_conv(decoder, "pre_conv.conv", c.codebook_dim, c.latent_dim, 3, 1);

  const WeightLoader transformer = exact.under("pre_transformer");
  input_projection_ = transformer.matrix("input_proj.weight", c.hidden_size, c.latent_dim);
  input_bias_ = transformer.vector("input_proj.bias", c.hidden_size);
  final_norm_ = transformer.vector("norm.weight", c.hidden_size);
  output_projection_ = transformer.matrix("output_proj.weight", c.latent_dim, c.hidden_size);
  output_bias_ = transformer.vector("output_proj.bias", c.latent_dim);
  const StackShape shape{.hidden = c.hidden_size,
                         .intermediate = c.intermediate_size,
                         .layers = c.layers,
                         .heads = c.heads,
                         .kv_heads = c.kv_heads,
                         .head_dim = c.head_dim,
                         .epsilon = c.rms_norm_eps,
                         .theta = c.rope_theta,
                         .window = c.sliding_window,
                         .head_norms = false,
                         .layer_scales = true};
  // A whole chunk is stored before its first row looks back over the window.
  const int32_t capacity = c.sliding_window - 1 + max_frames;
  transformer_ =
      std::make_unique<DecoderStack>(device, transformer, shape, "codec.transformer", slots, capacity);

  load_upsampling(decoder);
  load_blocks(decoder.under("decoder"));

  lane_slot_ = device.allocate("codec.lane_slot", Dtype::i32, 1, 1);
  lane_count_ = device.allocate("codec.lane_count", Dtype::i32, 1, 1);
  position_ = device.allocate("codec.position", Dtype::i32, slots, 1);
  ids_ = device.allocate("codec.ids", Dtype::i32, max_frames, groups_);
  quantized_ = device.allocate("codec.quantized", Dtype::f32, max_frames, c.codebook_dim);
  stack_ = StackBuffers::allocate(device, "codec.transformer", shape, max_frames);
  allocate_scratch(max_frames);
  const OnCodecQueue queue(device);
  for (int32_t frames = 1;; frames = std::min(frames * 4, max_frames)) {
    const backend::Program program = device.record("codec x" + std::to_string(frames),
                                                   [&](backend::Ops& ops) { record_chunk(ops, frames); });
    classes_.push_back({frames, program});
    if (frames == max_frames) break;
  }
}

void CodecDecoder::load_quantizer(const WeightLoader& loader) {
  const CodecDecoderConfig& c = config_;
  const int32_t width = c.codebook_dim / 2;
  first_projection_ = loader.pointwise("rvq_first.output_proj.weight", c.codebook_dim, width);
  rest_projection_ = loader.pointwise("rvq_rest.output_proj.weight", c.codebook_dim, width);
  codebooks_.reserve(groups_);
  for (int32_t g = 0; g < groups_; ++g) {
    const bool first = g < c.num_semantic_quantizers;
    const int32_t layer = first ? g : g - c.num_semantic_quantizers;
    const WeightLoader book = loader.under((first ? "rvq_first.vq.layers." : "rvq_rest.vq.layers.") +
                                           std::to_string(layer) + "._codebook");
    const std::vector<float> usage = book.floats("cluster_usage", {c.codebook_size});
    std::vector<float> sum = book.floats("embedding_sum", {c.codebook_size, width});
    for (int32_t i = 0; i < c.codebook_size; ++i) {
      const float divisor = std::max(usage[i], 1e-5f);
      for (int32_t j = 0; j < width; ++j) sum[size_t(i) * width + j] /= divisor;
    }
    codebooks_.push_back(std::move(sum));
    tables_.push_back(
        book.derived(WeightRole::table, "codebook", codebooks_.back(), {c.codebook_size, width}));
  }
}

void CodecDecoder::load_upsampling(const WeightLoader& loader) {
  const int32_t n = config_.latent_dim;
  for (size_t i = 0; i < config_.upsampling_ratios.size(); ++i) {
    const int32_t ratio = config_.upsampling_ratios[i];
    const WeightLoader at = loader.under("upsample." + std::to_string(i));
    const WeightLoader next = at.under("1").exactly();
    Upsample stage;
    stage.transposed = load_transposed(at, "0.conv", n, n, ratio, ratio);
    stage.depthwise = {.weight = next.load(WeightRole::depthwise, "dwconv.conv.weight", {n, 1, 7}),
                       .bias = next.vector("dwconv.conv.bias", n),
                       .in = n,
                       .out = n,
                       .kernel = 7,
                       .state = allocate_state("codec.upsample.depthwise", 6, n)};
    stage.norm = next.vector("norm.weight", n);
    stage.norm_bias = next.vector("norm.bias", n);
    stage.expand = next.matrix("pwconv1.weight", 4 * n, n);
    stage.expand_bias = next.vector("pwconv1.bias", 4 * n);
    stage.contract = next.matrix("pwconv2.weight", n, 4 * n);
    stage.contract_bias = next.vector("pwconv2.bias", n);
    stage.gamma = next.vector("gamma", n);
    upsamples_.push_back(stage);
  }
}

void CodecDecoder::load_blocks(const WeightLoader& loader) {
  entry_ = load_conv(loader, "0.conv", config_.latent_dim, config_.decoder_dim, 7, 1);
  int32_t channels = config_.decoder_dim;
  for (size_t i = 0; i < config_.upsample_rates.size(); ++i) {
    const int32_t rate = config_.upsample_rates[i], out = channels / 2;
    const WeightLoader at = loader.under(std::to_string(i + 1) + ".block");
    Block block;
    block.snake = load_snake(at, "0", channels);
    block.transposed = load_transposed(at, "1.conv", channels, out, 2 * rate, rate);
    int32_t dilation = 1;
    for (int unit = 2; unit <= 4; ++unit, dilation *= 3) {
      const WeightLoader inner = at.under(std::to_string(unit));
      block.residuals.push_back({.snake1 = load_snake(inner, "act1", out),
                                 .snake2 = load_snake(inner, "act2", out),
                                 .conv1 = load_conv(inner, "conv1.conv", out, out, 7, dilation),
                                 .conv2 = load_conv(inner, "conv2.conv", out, out, 1, 1)});
    }
    blocks_.push_back(std::move(block));
    channels = out;
  }
  const size_t last = config_.upsample_rates.size() + 1;
  exit_snake_ = load_snake(loader, std::to_string(last), channels);
  exit_ = load_conv(loader, std::to_string(last + 1) + ".conv", channels, 1, 7, 1);
}

CodecDecoder::Convolution CodecDecoder::load_conv(const WeightLoader& loader, const std::string& name,
                                                  int32_t in, int32_t out, int32_t kernel, int32_t dilation) {
  return {.weight = loader.load(WeightRole::convolution, name + ".weight", {out, in, kernel}),
          .bias = loader.vector(name + ".bias", out),
          .in = in,
          .out = out,
          .kernel = kernel,
          .dilation = dilation,
          .state = allocate_state("codec." + name, (kernel - 1) * dilation, in)};
}

CodecDecoder::Convolution CodecDecoder::load_transposed(const WeightLoader& loader, const std::string& name,
                                                        int32_t in, int32_t out, int32_t kernel,
                                                        int32_t stride) {
  return {.weight = loader.load(WeightRole::transposed_convolution, name + ".weight", {in, out, kernel}),
          .bias = loader.vector(name + ".bias", out),
          .in = in,
          .out = out,
          .kernel = kernel,
          .dilation = stride,
          .state = allocate_state("codec." + name, kernel / stride - 1, in)};
}

backend::Snake CodecDecoder::load_snake(const WeightLoader& loader, const std::string& name,
                                        int32_t channels) {
  // Stored as logarithms; specification 8.2.
  std::vector<float> alpha = loader.floats(name + ".alpha", {channels});
  std::vector<float> beta = loader.floats(name + ".beta", {channels});
  for (float& a : alpha) a = std::exp(a);
  for (float& b : beta) b = 1.0f / (std::exp(b) + 1e-9f);
  return {loader.derived(WeightRole::vector, name + ".alpha", alpha, {channels}),
          loader.derived(WeightRole::vector, name + ".beta", beta, {channels})};
}

Buffer CodecDecoder::allocate_state(const std::string& label, int32_t history, int32_t channels) {
  if (history == 0) return {};
  const Buffer state = device_.allocate(label + ".state", Dtype::f32, int64_t{slots_} * history, channels);
  states_.push_back({state, history});
  return state;
}

int64_t CodecDecoder::widest_stage(const CodecDecoderConfig& config) {
  // Rows grow while channels halve.
  int64_t rows = 1, channels = config.latent_dim, widest = channels;
  for (int32_t ratio : config.upsampling_ratios) {
    rows *= ratio;
    widest = std::max(widest, rows * channels * 4);  // ConvNeXt expands four times
  }
  channels = config.decoder_dim;
  widest = std::max(widest, rows * channels);
  for (int32_t rate : config.upsample_rates) {
    rows *= rate, channels /= 2;
    widest = std::max(widest, rows * channels);
  }
  return widest;
}

void CodecDecoder::allocate_scratch(int32_t max_frames) {
  const int64_t widest = widest_stage(config_);
  if (widest > INT32_MAX)
    throw Error(ErrorCode::model_invalid,
                "the codec's widest stage has " + std::to_string(widest) +
                    " values a frame, more than any real model; check its config.json");
  auto area = [&](const char* label) {
    return device_.allocate(label, Dtype::f32, max_frames, static_cast<int32_t>(widest));
  };
  scratch_ = {area("codec.a"), area("codec.b"), area("codec.c")};
}

void CodecDecoder::write_word(const Buffer& to, int32_t value, int32_t& set) {
  if (value == set) return;
  device_.write(to, std::as_bytes(std::span(&value, 1)));
  set = value;
}

void CodecDecoder::reset(int32_t slot) {
  const OnCodecQueue queue(device_);
  for (const State& s : states_) device_.zero(s.buffer.row_range(slot * s.rows_per_slot, s.rows_per_slot));
  device_.zero(position_.row_range(slot, 1));
}

void CodecDecoder::decode(int32_t slot, std::span<const int32_t> codes, std::span<float> samples) {
  const auto frames = static_cast<int32_t>(codes.size() / groups_);
  if (samples.size() != size_t(frames) * samples_per_frame_)
    throw Error(ErrorCode::internal, "codec decode: the sample span does not match the number of frames");
  const OnCodecQueue queue(device_);
  write_word(lane_slot_, slot, slot_set_);
  for (int32_t done = 0; done < frames;) {
    const int32_t left = frames - done;
    auto fits =
        std::find_if(classes_.begin(), classes_.end(), [&](const ChunkClass& c) { return c.frames >= left; });
    const ChunkClass& chosen = fits == classes_.end() ? classes_.back() : *fits;
    const int32_t count = std::min(left, chosen.frames);
    write_word(lane_count_, count, count_set_);
    device_.write(ids_.row_range(0, count),
                  std::as_bytes(codes.subspan(size_t(done) * groups_, size_t(count) * groups_)));
    device_.run(chosen.program);
    const auto out = samples.subspan(size_t(done) * samples_per_frame_, size_t(count) * samples_per_frame_);
    device_.read(scratch_.a.reshaped(count * samples_per_frame_, 1), std::as_writable_bytes(out));
    done += count;
  }
}

std::vector<Buffer> CodecDecoder::carried(int32_t slot) const {
  std::vector<Buffer> views{position_.row_range(slot, 1)};
  for (const State& s : states_) views.push_back(s.buffer.row_range(slot * s.rows_per_slot, s.rows_per_slot));
  for (const backend::KvCache& cache : transformer_->caches())
    for (const Buffer& b : {cache.k, cache.v})
      views.push_back(b.row_range(slot * cache.capacity, cache.capacity));
  return views;
}

std::vector<std::byte> CodecDecoder::save(int32_t slot) const {
  const OnCodecQueue queue(device_);
  std::vector<std::byte> state;
  for (const Buffer& view : carried(slot)) {
    const size_t done = state.size(), size = size_t(view.rows) * view.width * dtype_size(view.dtype);
    state.resize(done + size);
    device_.read(view, std::span(state).subspan(done));
  }
  return state;
}

void CodecDecoder::restore(int32_t slot, std::span<const std::byte> state) {
  const OnCodecQueue queue(device_);
  for (const Buffer& view : carried(slot)) {
    const size_t size = size_t(view.rows) * view.width * dtype_size(view.dtype);
    device_.write(view, state.first(size));
    state = state.subspan(size);
  }
}

}  // namespace skald::model
