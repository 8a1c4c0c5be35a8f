// Which tiles a convolution is cut into (docs/decisions/0012-codec-tiles-on-gpus.md).
#include "backend/gpu/convolutions.h"

#include <algorithm>

namespace skald::backend::gpu {
namespace {

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

}  // namespace

void carry_state(const Binder& b, const Buffer& state, int channels, ConvArgs& args) {
  const Rows<float> rows = b.rows(state, args.around, channels, "state");
  const int64_t carried = int64_t{args.lanes.lanes} * args.around * channels;
  args.carry = {rows.data, rows.stride, channels,
                static_cast<int>(std::clamp<int64_t>((carried + kBlock - 1) / kBlock, 1, 32))};
}

Launch conv_launch(const Binder& b, ConvArgs args, int64_t staged, int channels) {
  const auto taps = static_cast<uint64_t>(args.matrix.taps);
  args.unit_stride = staged * kUnitInputs;
  args.tap_inverse = ((uint64_t{1} << 32) + taps - 1) / taps;
  args.units = (channels + kUnitInputs - 1) / kUnitInputs * args.matrix.taps;
  args.part_units = (args.units + kParts - 1) / kParts;
  const int64_t rows = int64_t{args.lanes.lanes} * args.lanes.rows,
                columns =
                    int64_t{(args.matrix.outputs + kTileOutputs - 1) / kTileOutputs} * args.matrix.phases;
  const Tiling& tiling = choose_tiling(b, rows, columns);
  args.tiles = static_cast<int>((rows + 8 * tiling.rows - 1) / (8 * tiling.rows) * columns);
  return Launch::make(tiling.kernel, args.tiles + args.carry.blocks, kBlock, args,
                      static_cast<size_t>(tiling.shared) * sizeof(float));
}

}  // namespace skald::backend::gpu
