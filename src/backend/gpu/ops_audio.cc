// conv, conv_transposed and depthwise.
#include <algorithm>

#include "backend/gpu/products.h"
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

// As in kernels/conv.cuh.
constexpr int kBlock = 256, kParts = 8, kTileOutputs = 32;

/// How a convolution is cut: a block makes 8 `rows` rows by 32 outputs.
struct Tiling {
  int rows;
  const char* kernel;
  int shared;  ///< floats: 8 warps with a step of `rows` x 8 x 8 inputs and its weights each, see conv.cuh
};
constexpr Tiling kTilings[] = {
    {1, "conv_8", 8 * 4 * (64 + 272)},
    {2, "conv_16", 8 * 2 * (128 + 272)},
    {4, "conv_32", 8 * 2 * (256 + 272)},
};

/// The tiling that is done first: a block's time grows with its rows, and where there are more blocks than
/// compute units some wait. No result depends on it.
const Tiling& choose_tiling(const Binder& b, int64_t rows, int64_t columns) {
  const auto time = [&](const Tiling& t) {
    constexpr int kFixed = 2;  // weights and beginnings, in rows
    const int64_t blocks = (rows + 8 * t.rows - 1) / (8 * t.rows) * columns;
    const int64_t units = b.target().traits().compute_units;
    return (blocks + units - 1) / units * (t.rows + kFixed);
  };
  return *std::min_element(std::begin(kTilings), std::end(kTilings),
                           [&](const Tiling& a, const Tiling& other) { return time(a) < time(other); });
}

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
  if (c.history > 0) {
    const Rows<float> state = b.rows(c.state, c.history, width, "state");
    const int64_t carried = int64_t{c.lanes.lanes} * c.history * width;
    args.carry = {state.data, state.stride, width,
                  static_cast<int>(std::clamp<int64_t>((carried + kBlock - 1) / kBlock, 1, 32))};
  }
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

Launch conv_launch(const Binder& b, ConvArgs args, int64_t staged, int channels) {
  const auto taps = static_cast<uint64_t>(args.matrix.taps);
  args.unit_stride = staged * kUnitChannels;
  args.tap_inverse = ((uint64_t{1} << 32) + taps - 1) / taps;
  args.units = (channels + kUnitChannels - 1) / kUnitChannels * args.matrix.taps;
  args.part_units = (args.units + kParts - 1) / kParts;
  const int64_t rows = int64_t{args.lanes.lanes} * args.lanes.rows,
                columns =
                    int64_t{(args.matrix.outputs + kTileOutputs - 1) / kTileOutputs} * args.matrix.phases;
  const Tiling& tiling = choose_tiling(b, rows, columns);
  args.tiles = static_cast<int>((rows + 8 * tiling.rows - 1) / (8 * tiling.rows) * columns);
  return Launch::make(tiling.kernel, args.tiles + args.carry.blocks, kBlock, args,
                      static_cast<size_t>(tiling.shared) * sizeof(float));
}

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
