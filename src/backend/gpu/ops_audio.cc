// conv, conv_transposed and depthwise.
#include "backend/gpu/convolutions.h"
#include "backend/gpu/recorder.h"

namespace skald::backend::gpu {
namespace {

/// What both dense convolutions are: tiles of a product over staged rows.
struct Convolution {
  const Buffer &x, &state, &out;
  const Snake& snake;
  const Lanes& lanes;
  int history = 0;  ///< rows carried from call to call
  int dilation = 1;
  MatrixArgs matrix{};
};

constexpr int kBlock = 256;

/// Brings the rows of a convolution together: behind the carried ones, after the snake.
Launch stage_launch(const Binder& b, const Convolution& c, const LaneArgs& lanes, float* out, int64_t rows) {
  StageArgs stage{};
  stage.lanes = lanes;
  const Rows<float> x = b.rows(c.x, c.lanes.total(), c.x.width, "x");
  stage.x = x.data, stage.x_stride = x.stride;
  stage.alpha = b.vector(c.snake.alpha), stage.inverse_beta = b.vector(c.snake.inverse_beta);
  stage.out = out;
  stage.history = c.history, stage.width = c.x.width;
  if (c.history > 0) {
    const Rows<float> state = b.rows(c.state, c.history, c.x.width, "state");
    stage.state = state.data, stage.state_stride = state.stride;
  }
  constexpr int kElements = 4 * kBlock;  // of one block
  return Launch::make("stage", (staged_floats(rows, c.x.width) + kElements - 1) / kElements, kBlock, stage);
}

/// Staged rows, then tiles; blocks behind them renew the state from what was staged.
std::vector<Launch> convolution(const Binder& b, const Convolution& c, const EpilogueArgs& to) {
  const int width = c.x.width;
  const int64_t rows = int64_t{c.lanes.lanes} * (c.history + c.lanes.rows);
  ConvArgs args{};
  args.lanes = b.lanes(c.lanes, c.history > 0 ? c.state.rows / c.history : kAnySlots);
  float* const staged = b.scratch<float>(staged_floats(rows, width));
  args.x = staged;
  args.matrix = c.matrix, args.to = to;
  args.stride = 1, args.dilation = c.dilation, args.around = c.history;
  if (c.history > 0) carry_state(b, c.state, width, args);
  return {stage_launch(b, c, args.lanes, staged, rows), conv_launch(b, args, rows, width)};
}

std::vector<Launch> conv_launches(const Binder& b, const Conv& a) {
  const MatrixArgs matrix = b.matrix(a.weight);
  const int rows = a.lanes.total();
  const Rows<float> out = b.rows(a.out, rows, matrix.outputs, "out"),
                    residual = b.optional_rows(a.residual, rows, matrix.outputs, "residual");
  EpilogueArgs to{};
  to.bias = b.vector(a.bias), to.residual = residual.data, to.residual_stride = residual.stride;
  to.out = out.data, to.out_stride = out.stride, to.clip = a.clip;
  return convolution(
      b, {a.x, a.state, a.out, a.snake, a.lanes, (a.kernel - 1) * a.dilation, a.dilation, matrix}, to);
}

/// Input row t - i meets kernel position phase + i * stride; taps run from the oldest row to the newest.
std::vector<Launch> transposed_launches(const Binder& b, const ConvTransposed& a) {
  MatrixArgs matrix = b.matrix(a.weight);
  const int taps = a.kernel / a.stride;
  const kp_i64 position = matrix.tap_bytes;
  matrix.taps = taps, matrix.phases = a.stride;
  matrix.data += (taps - 1) * a.stride * position;
  matrix.tap_bytes = -a.stride * position, matrix.phase_bytes = position;
  const Rows<float> out = b.rows(a.out, int64_t{a.lanes.total()} * a.stride, matrix.outputs, "out");
  EpilogueArgs to{};
  to.bias = b.vector(a.bias), to.out = out.data, to.out_stride = out.stride;
  return convolution(b, {a.x, a.state, a.out, a.snake, a.lanes, taps - 1, 1, matrix}, to);
}

std::vector<Launch> depthwise_launches(const Binder& b, const Depthwise& a) {
  const int channels = a.x.width, history = a.kernel - 1;
  DepthwiseArgs args{};
  args.lanes = b.lanes(a.lanes, history > 0 ? a.state.rows / history : kAnySlots);
  const Rows<float> x = b.rows(a.x, a.lanes.total(), channels, "x"),
                    out = b.rows(a.out, a.lanes.total(), channels, "out");
  args.x = x.data, args.x_stride = x.stride, args.out = out.data, args.out_stride = out.stride;
  args.weight = b.vector(a.weight), args.bias = b.vector(a.bias);
  if (history > 0) {
    const Rows<float> state = b.rows(a.state, history, channels, "state");
    args.state = state.data, args.state_stride = state.stride;
  }
  args.taps = a.kernel, args.channels = channels;
  return {Launch::make("depthwise", int64_t{a.lanes.lanes} * ((channels + 63) / 64), 64, args)};
}

}  // namespace

void Recorder::conv(const Conv& a) {
  add("conv", a, {a.out, a.state}, [&](const Binder& b) { return conv_launches(b, a); });
}
void Recorder::conv_transposed(const ConvTransposed& a) {
  add("conv_transposed", a, {a.out, a.state}, [&](const Binder& b) { return transposed_launches(b, a); });
}
void Recorder::depthwise(const Depthwise& a) {
  add("depthwise", a, {a.out, a.state}, [&](const Binder& b) { return depthwise_launches(b, a); });
}

}  // namespace skald::backend::gpu
