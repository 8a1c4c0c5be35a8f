// Codec decoder: the stages as they are recorded. Specification 8.1-8.5.
#include "model/codec_decoder.h"

namespace skald::model {

using backend::Buffer;
using backend::Lanes;
using backend::Norm;

/// The lanes grow with every upsampling; `a` is the current activation, `b` and `c` are free.
struct CodecDecoder::Recording {
  backend::Ops& ops;
  Lanes lanes;
  Scratch scratch;

  Buffer a(int32_t width) const { return scratch.a.reshaped(lanes.total(), width); }
  Buffer b(int32_t width) const { return scratch.b.reshaped(lanes.total(), width); }
  Buffer c(int32_t width) const { return scratch.c.reshaped(lanes.total(), width); }
  void swap_ab() { std::swap(scratch.a, scratch.b); }
};

void CodecDecoder::record_conv(Recording& r, const Convolution& conv, const backend::Snake& snake,
                               const Buffer& x, const Buffer& out, const Buffer& residual, float clip) {
  r.ops.conv({.x = x,
              .snake = snake,
              .weight = conv.weight,
              .bias = conv.bias,
              .kernel = conv.kernel,
              .dilation = conv.dilation,
              .state = conv.state,
              .residual = residual,
              .clip = clip,
              .out = out,
              .lanes = r.lanes});
}

void CodecDecoder::record_chunk(backend::Ops& ops, int32_t frames) const {
  Recording r{
      .ops = ops,
      .lanes = {.lanes = 1, .rows = frames, .slot = lane_slot_, .count = lane_count_, .start = position_},
      .scratch = scratch_};
  const Lanes per_frame = r.lanes;
  ops.label("codec.quantizer");
  record_quantizer(r);
  record_transformer(r);
  for (size_t i = 0; i < upsamples_.size(); ++i) record_upsample(r, upsamples_[i], i);
  ops.label("codec.decoder.0");
  record_conv(r, entry_, {}, r.a(entry_.in), r.b(entry_.out));
  r.swap_ab();
  for (size_t i = 0; i < blocks_.size(); ++i) record_block(r, blocks_[i], i);
  ops.label("codec.decoder.exit");
  // The samples must end in the area that decode() reads.
  const bool in_place = r.scratch.a.id == scratch_.a.id;
  const Buffer samples = (in_place ? r.scratch.b : scratch_.a).reshaped(r.lanes.total(), 1);
  record_conv(r, exit_, exit_snake_, r.a(exit_.in), samples, {}, 1.0f);
  if (in_place) ops.copy({.x = samples, .out = scratch_.a.reshaped(r.lanes.total(), 1), .lanes = r.lanes});
  ops.advance({.counter = position_, .lanes = per_frame});
}

void CodecDecoder::record_quantizer(Recording& r) const {
  const int32_t width = config_.codebook_dim / 2, semantic = config_.num_semantic_quantizers;
  const Buffer ids = ids_.row_range(0, r.lanes.total());
  const Buffer out = quantized_.row_range(0, r.lanes.total());
  const std::vector<backend::Weight> first(tables_.begin(), tables_.begin() + semantic);
  const std::vector<backend::Weight> rest(tables_.begin() + semantic, tables_.end());
  r.ops.gather_sum({.tables = first, .ids = ids.columns(0, semantic), .out = r.a(width), .lanes = r.lanes});
  r.ops.linear({.x = r.a(width), .weight = first_projection_, .out = out, .lanes = r.lanes});
  r.ops.gather_sum({.tables = rest,
                    .ids = ids.columns(semantic, groups_ - semantic),
                    .out = r.a(width),
                    .lanes = r.lanes});
  r.ops.linear({.x = r.a(width), .weight = rest_projection_, .residual = out, .out = out, .lanes = r.lanes});
}

void CodecDecoder::record_transformer(Recording& r) const {
  const int32_t rows = r.lanes.total();
  const StackBuffers stack = stack_.first_rows(rows);
  r.ops.label("codec.pre_conv");
  record_conv(r, pre_conv_, {}, quantized_.row_range(0, rows), r.a(pre_conv_.out));
  r.ops.label("codec.transformer.input");
  r.ops.linear({.x = r.a(pre_conv_.out),
                .weight = input_projection_,
                .bias = input_bias_,
                .out = stack.x,
                .lanes = r.lanes});
  transformer_->record_rope(r.ops, stack.rope, r.lanes);
  transformer_->record_layers(r.ops, stack, r.lanes);
  r.ops.label("codec.transformer.output");
  r.ops.linear({.x = stack.x,
                .norm = {Norm::rms, final_norm_, {}, config_.rms_norm_eps},
                .weight = output_projection_,
                .bias = output_bias_,
                .out = r.a(config_.latent_dim),
                .lanes = r.lanes});
}

void CodecDecoder::record_upsample(Recording& r, const Upsample& stage, size_t index) const {
  constexpr float kLayerNormEpsilon = 1e-6f;
  const Convolution& up = stage.transposed;
  const int32_t n = up.out;
  r.ops.label("codec.upsample." + std::to_string(index));
  const Buffer in = r.a(n);
  const Lanes in_lanes = r.lanes;
  r.lanes = r.lanes.upsampled(up.dilation);
  r.ops.conv_transposed({.x = in,
                         .weight = up.weight,
                         .bias = up.bias,
                         .kernel = up.kernel,
                         .stride = up.dilation,
                         .state = up.state,
                         .out = r.b(n),
                         .lanes = in_lanes});
  const Convolution& dw = stage.depthwise;
  r.ops.depthwise({.x = r.b(n),
                   .weight = dw.weight,
                   .bias = dw.bias,
                   .kernel = dw.kernel,
                   .state = dw.state,
                   .out = r.c(n),
                   .lanes = r.lanes});
  r.ops.linear({.x = r.c(n),
                .norm = {Norm::layer, stage.norm, stage.norm_bias, kLayerNormEpsilon},
                .weight = stage.expand,
                .bias = stage.expand_bias,
                .activation = backend::Activation::gelu_erf,
                .out = r.a(4 * n),
                .lanes = r.lanes});
  r.ops.linear({.x = r.a(4 * n),
                .weight = stage.contract,
                .bias = stage.contract_bias,
                .residual = r.b(n),
                .scale = stage.gamma,
                .out = r.b(n),
                .lanes = r.lanes});
  r.swap_ab();
}

void CodecDecoder::record_block(Recording& r, const Block& block, size_t index) const {
  const Convolution& up = block.transposed;
  r.ops.label("codec.decoder." + std::to_string(index + 1));
  const Buffer in = r.a(up.in);
  const Lanes in_lanes = r.lanes;
  r.lanes = r.lanes.upsampled(up.dilation);
  r.ops.conv_transposed({.x = in,
                         .snake = block.snake,
                         .weight = up.weight,
                         .bias = up.bias,
                         .kernel = up.kernel,
                         .stride = up.dilation,
                         .state = up.state,
                         .out = r.b(up.out),
                         .lanes = in_lanes});
  r.swap_ab();
  for (const Residual& unit : block.residuals) record_residual(r, unit);
}

void CodecDecoder::record_residual(Recording& r, const Residual& unit) const {
  const int32_t n = unit.conv1.out;
  record_conv(r, unit.conv1, unit.snake1, r.a(n), r.b(n));
  record_conv(r, unit.conv2, unit.snake2, r.b(n), r.c(n), r.a(n));
  std::swap(r.scratch.a, r.scratch.c);
}

}  // namespace skald::model
