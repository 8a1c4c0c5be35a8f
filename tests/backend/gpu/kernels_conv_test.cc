// Tiles of convolutions: whichever is chosen, the bits are the same.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

struct TileCase {
  int units;  ///< compute units, which the choice of a tile depends on
  const char* kernel;
};

class Tiles : public testing::Test {
 protected:
  /// What all kinds of convolution leave in outputs and states, by tiles of that kernel. Two lanes of 64
  /// rows of which one is not full: no tile begins or ends with both of them.
  std::vector<float> run(const std::string& device, const TileCase& tile) {
    constexpr int kRows = 64, kIn = 20, kOut = 40, kSlots = 3, kDilation = 3, kStride = 2;
    Rig rig(device, 1, 5);
    auto& kernels = static_cast<gpu::test::KernelDevice&>(rig.device());
    kernels.set_compute_units(tile.units);
    const LaneCase c{"", 2, kRows, 1, kSlots, {2, 0}, {kRows, 33}, {}, {}};
    const Lanes lanes = rig.lanes(c);
    // As many rows behind the stride; one lane ends inside it.
    const LaneCase wide{"", 2, kStride * kRows, 1, kSlots, {2, 0}, {kStride * kRows, 65}, {}, {}};
    const Lanes wide_lanes = rig.lanes(wide);
    const Weight w = rig.load(WeightRole::convolution, {kOut, kIn, 3}, 0.3f).weight,
                 up = rig.load(WeightRole::transposed_convolution, {kOut, kIn, 2 * kStride}, 0.3f).weight,
                 down = rig.load(WeightRole::convolution, {kOut, kIn, 2 * kStride}, 0.3f).weight,
                 bias = rig.load(WeightRole::vector, {kOut}).weight,
                 alpha = rig.load(WeightRole::vector, {kIn}).weight;
    const auto zeros = [&](int rows, int width) {
      return rig.buffer(rows, width, std::vector<float>(static_cast<size_t>(rows * width)));
    };
    const auto numbers = [&](int rows, int width) {
      return rig.buffer(rows, width, rig.normal(int64_t{rows} * width));
    };
    const Buffer x = numbers(c.total(), kIn), y = zeros(c.total(), kOut), z = zeros(c.total() * kStride, kIn),
                 state = numbers(kSlots * 2 * kDilation, kIn), up_state = numbers(kSlots, kOut),
                 v = numbers(wide.total(), kIn), d = zeros(c.total(), kOut),
                 down_state = numbers(kSlots * kStride, kIn);
    const Program p = rig.device().record("tiles", [&](Ops& ops) {
      ops.conv({.x = x,
                .snake = {alpha, alpha},
                .weight = w,
                .bias = bias,
                .kernel = 3,
                .dilation = kDilation,
                .state = state,
                .residual = y,
                .clip = 2,
                .out = y,
                .lanes = lanes});
      ops.conv_transposed({.x = y,
                           .weight = up,
                           .kernel = 2 * kStride,
                           .stride = kStride,
                           .state = up_state,
                           .out = z,
                           .lanes = lanes});
      ops.padded_conv({.x = v,
                       .before = Activation::elu,
                       .weight = down,
                       .bias = bias,
                       .kernel = 2 * kStride,
                       .stride = kStride,
                       .state = down_state,
                       .after = Activation::relu,
                       .out = d,
                       .lanes = wide_lanes});
    });
    EXPECT_EQ(kernels.recorded(p)[0].launches.back().kernel, tile.kernel);
    EXPECT_EQ(kernels.recorded(p)[1].launches.back().kernel, tile.kernel);
    EXPECT_EQ(kernels.recorded(p)[2].launches.back().kernel, tile.kernel);
    rig.device().run(p);
    rig.device().run(p);  // with the state of the first
    std::vector<float> all;
    for (const Buffer& b : {y, z, d, state, up_state, down_state}) {
      const std::vector<float> part = rig.read(b);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

TEST_F(Tiles, AllLeaveTheSameBits) {
  std::vector<float> first;
  std::vector<std::string> devices = rig_devices();
  if (devices.front() == "gpu") GTEST_SKIP() << "a GPU has the compute units that it has";
  devices.emplace_back("race");
  for (const std::string& device : devices)
    for (const TileCase& tile : {TileCase{8, "conv_32"}, {16, "conv_16"}, {32, "conv_8"}}) {
      const std::vector<float> all = run(device, tile);
      if (first.empty()) first = all;
      expect_same_bits(first, all, device + ", " + tile.kernel);
    }
}

}  // namespace
}  // namespace skald::backend::test
