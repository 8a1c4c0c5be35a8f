// conv, conv_transposed and depthwise against double-precision references; streaming equals one call.
#include <algorithm>
#include <cmath>

#include "rig.h"

namespace skald::backend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

struct SnakeTensors {
  Tensor alpha, inverse_beta;
  Snake call() const { return {alpha.weight, inverse_beta.weight}; }
};

SnakeTensors make_snake(Rig& rig, int channels) {
  std::vector<float> beta = rig.normal(channels);
  for (float& b : beta) b = std::abs(b) + 0.1f;
  return {rig.load(WeightRole::vector, {channels}), rig.load(WeightRole::vector, {channels}, beta)};
}

double snake(const SnakeTensors& s, double x, int channel) {
  return x + s.inverse_beta.at(channel) * std::pow(std::sin(x * s.alpha.at(channel)), 2);
}

/// A convolution's input as the op sees it: rows of a lane, before them the state of its slot (already after
/// the snake).
struct Input {
  const LaneCase& c;
  const std::vector<float>&x, &state;
  int channels, history;
  const SnakeTensors* snake_tensors;

  double at(int lane, int r, int channel) const {
    if (r < 0)
      return state[static_cast<size_t>(
          (c.slot[static_cast<size_t>(lane)] * history + history + r) * channels + channel)];
    const double v = x[static_cast<size_t>((lane * c.rows + r) * channels + channel)];
    return snake_tensors ? snake(*snake_tensors, v, channel) : v;
  }
};

/// The state after the run: the last rows of state and input together; slots without a running lane keep
/// theirs.
void expect_state(Rig& rig, const Buffer& buffer, const Input& in, const std::string& name) {
  std::vector<double> want(in.state.begin(), in.state.end());
  for (int lane = 0; lane < in.c.lanes; ++lane) {
    const int n = in.c.valid(lane);
    if (n == 0) continue;
    for (int h = 0; h < in.history; ++h)
      for (int ch = 0; ch < in.channels; ++ch)
        want[static_cast<size_t>((in.c.slot[static_cast<size_t>(lane)] * in.history + h) * in.channels +
                                 ch)] = in.at(lane, n - in.history + h, ch);
  }
  const std::vector<float> got = rig.read(buffer);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(difference(got[i], {want[i], std::abs(want[i]) + 1}, 1e-6), "")
        << name << ", state element " << i;
}

struct ConvSizes {
  int inputs, outputs, kernel, dilation;
  bool snake, residual, in_place;
  float clip;
};

void check_conv(Rig& rig, const LaneCase& c, const ConvSizes& s) {
  const int history = (s.kernel - 1) * s.dilation;
  const Tensor w = rig.load(WeightRole::convolution, {s.outputs, s.inputs, s.kernel}, 0.4f),
               bias = rig.load(WeightRole::vector, {s.outputs});
  const SnakeTensors sn = make_snake(rig, s.inputs);
  std::vector<float> x, residual;
  const Guarded gx = rig.guarded_input(c, s.inputs, &x, 2), gr = rig.guarded_input(c, s.outputs, &residual);
  const std::vector<float> state = rig.normal(int64_t{c.slots} * history * s.inputs);
  const Buffer bs = history > 0 ? rig.buffer(c.slots * history, s.inputs, state) : Buffer{};
  const Guarded out = s.in_place ? gr : rig.guarded(c.total(), s.outputs);
  rig.run([&](Ops& ops) {
    ops.conv({.x = gx.view,
              .snake = s.snake ? sn.call() : Snake{},
              .weight = w.weight,
              .bias = bias.weight,
              .kernel = s.kernel,
              .dilation = s.dilation,
              .state = bs,
              .residual = s.residual ? gr.view : Buffer{},
              .clip = s.clip,
              .out = out.view,
              .lanes = rig.lanes(c)});
  });
  const Input in{c, x, state, s.inputs, history, s.snake ? &sn : nullptr};
  rig.expect_rows(out, c, 1, 2e-6, [&](int row, int column) {
    Expected y;
    y += bias.at(column);
    for (int j = 0; j < s.kernel; ++j)
      for (int i = 0; i < s.inputs; ++i)
        y += in.at(row / c.rows, row % c.rows - (s.kernel - 1 - j) * s.dilation, i) * w.at(column, i, j);
    if (s.residual) y += residual[static_cast<size_t>(row * s.outputs + column)];
    if (s.clip > 0) y.value = std::clamp(y.value, -static_cast<double>(s.clip), static_cast<double>(s.clip));
    return y;
  });
  if (history > 0) expect_state(rig, bs, in, c.name);
}

TEST_P(PerTarget, Conv) {
  Rig rig(GetParam());
  for (const LaneCase& c : lane_cases(6, 2))
    for (const ConvSizes& s : {ConvSizes{3, 5, 3, 1, false, false, false, 0},
                               {17, 20, 7, 3, true, true, false, 0},
                               {33, 33, 1, 1, true, true, true, 0},
                               {20, 1, 7, 1, true, false, false, 0.5f},
                               {5, 70, 1, 1, false, false, false, 0},
                               {130, 16, 3, 9, false, true, true, 0}})
      check_conv(rig, c, s);
}

TEST_P(PerTarget, ConvWithManyRows) {
  Rig rig(GetParam());
  check_conv(rig, plain_case(211), {40, 66, 7, 9, true, true, true, 0});
  check_conv(rig, plain_case(3),
             {300, 33, 3, 2, false, false, false, 0});  // longer than a block, fewer rows than history
}

struct TransposedSizes {
  int inputs, outputs, kernel, stride;
  bool snake;
};

void check_transposed(Rig& rig, const LaneCase& c, const TransposedSizes& s) {
  const int history = s.kernel / s.stride - 1;
  const Tensor w = rig.load(WeightRole::transposed_convolution, {s.inputs, s.outputs, s.kernel}, 0.4f),
               bias = rig.load(WeightRole::vector, {s.outputs});
  const SnakeTensors sn = make_snake(rig, s.inputs);
  std::vector<float> x;
  const Guarded gx = rig.guarded_input(c, s.inputs, &x, 2),
                out = rig.guarded(c.total() * s.stride, s.outputs);
  const std::vector<float> state = rig.normal(int64_t{c.slots} * history * s.inputs);
  const Buffer bs = history > 0 ? rig.buffer(c.slots * history, s.inputs, state) : Buffer{};
  rig.run([&](Ops& ops) {
    ops.conv_transposed({.x = gx.view,
                         .snake = s.snake ? sn.call() : Snake{},
                         .weight = w.weight,
                         .bias = bias.weight,
                         .kernel = s.kernel,
                         .stride = s.stride,
                         .state = bs,
                         .out = out.view,
                         .lanes = rig.lanes(c)});
  });
  const Input in{c, x, state, s.inputs, history, s.snake ? &sn : nullptr};
  rig.expect_rows(out, c, s.stride, 2e-6, [&](int row, int column) {
    // Every input row t adds to output rows t * stride + j.
    const int lane = row / (c.rows * s.stride), at = row % (c.rows * s.stride);
    Expected y;
    y += bias.at(column);
    for (int t = at / s.stride - history; t <= at / s.stride; ++t)
      for (int i = 0; i < s.inputs; ++i) y += in.at(lane, t, i) * w.at(i, column, at - t * s.stride);
    return y;
  });
  if (history > 0) expect_state(rig, bs, in, c.name);
}

/// Width 1, no snake: nothing but the op itself keeps the input apart from the output that takes its place.
TEST_P(PerTarget, ConvInPlaceOfItsInput) {
  constexpr int kChannels = 40;
  Rig rig(GetParam());
  const Tensor w = rig.load(WeightRole::convolution, {kChannels, kChannels, 1});
  for (const LaneCase& c : lane_cases(5)) {
    std::vector<float> x;
    const Guarded both = rig.guarded_input(c, kChannels, &x);
    rig.run([&](Ops& ops) {
      ops.conv({.x = both.view, .weight = w.weight, .out = both.view, .lanes = rig.lanes(c)});
    });
    rig.expect_rows(both, c, 1, 2e-6, [&](int row, int column) {
      Expected y;
      for (int i = 0; i < kChannels; ++i)
        y += static_cast<double>(x[static_cast<size_t>(row * kChannels + i)]) * w.at(column, i, 0);
      return y;
    });
  }
}

/// Rows would be overwritten before they are read.
TEST_P(PerTarget, ConvRefusesAShiftedViewOfItsInput) {
  constexpr int kChannels = 8, kRows = 5;
  Rig rig(GetParam());
  const Tensor w = rig.load(WeightRole::convolution, {kChannels, kChannels, 1});
  const Buffer all = rig.buffer(kRows + 1, kChannels, rig.normal(int64_t{kRows + 1} * kChannels));
  for (const int shift : {0, 1})
    EXPECT_THROW(rig.run([&](Ops& ops) {
      ops.conv({.x = all.row_range(shift, kRows),
                .weight = w.weight,
                .out = all.row_range(1 - shift, kRows),
                .lanes = rig.lanes(plain_case(kRows))});
    }),
                 Error);
}

TEST_P(PerTarget, ConvTransposed) {
  Rig rig(GetParam());
  for (const LaneCase& c : lane_cases(4, 2))
    for (const TransposedSizes& s : {TransposedSizes{3, 5, 2, 2, false},
                                     {17, 20, 6, 3, true},
                                     {20, 64, 10, 5, true},
                                     {9, 1, 4, 1, false},
                                     {300, 70, 16, 8, true}})
      check_transposed(rig, c, s);
  check_transposed(rig, plain_case(150), {32, 40, 8, 4, true});
}

TEST_P(PerTarget, Depthwise) {
  Rig rig(GetParam());
  for (const int kernel : {1, 2, 7})
    for (const int channels : {1, 16, 37})
      for (const int rows : {2, 10})
        for (const LaneCase& c : lane_cases(rows, 2)) {
          const Tensor w = rig.load(WeightRole::depthwise, {channels, 1, kernel}),
                       bias = rig.load(WeightRole::vector, {channels});
          std::vector<float> x;
          const Guarded gx = rig.guarded_input(c, channels, &x), out = rig.guarded(c.total(), channels);
          const std::vector<float> state = rig.normal(int64_t{c.slots} * (kernel - 1) * channels);
          const Buffer bs = kernel > 1 ? rig.buffer(c.slots * (kernel - 1), channels, state) : Buffer{};
          rig.run([&](Ops& ops) {
            ops.depthwise({.x = gx.view,
                           .weight = w.weight,
                           .bias = bias.weight,
                           .kernel = kernel,
                           .state = bs,
                           .out = out.view,
                           .lanes = rig.lanes(c)});
          });
          const Input in{c, x, state, channels, kernel - 1, nullptr};
          rig.expect_rows(out, c, 1, 1e-6, [&](int row, int column) {
            Expected y;
            y += bias.at(column);
            for (int j = 0; j < kernel; ++j)
              y += in.at(row / c.rows, row % c.rows - (kernel - 1 - j), column) * w.at(column, 0, j);
            return y;
          });
          if (kernel > 1) expect_state(rig, bs, in, c.name);
        }
}

/// depthwise, transposed and dilated convolution over a sequence cut anywhere give the bits of one call.
TEST_P(PerTarget, ChunksGiveTheSameBits) {
  const int kRows = rig_is_slow() ? 70 : 300;
  constexpr int kChannels = 40, kMiddle = 24, kStride = 3, kDilation = 9;
  std::vector<std::vector<float>> results;
  for (const int most : {kRows, 1, 4, kRows / 3})
    for (const int threads : rig_threads()) {
      if (most == 1 && threads == 3) continue;
      Rig rig(GetParam(), threads, 11);
      const Tensor deep = rig.load(WeightRole::depthwise, {kChannels, 1, 7}),
                   up = rig.load(WeightRole::transposed_convolution, {kChannels, kMiddle, 2 * kStride}, 0.2f),
                   w = rig.load(WeightRole::convolution, {kMiddle, kMiddle, 7}, 0.2f);
      const SnakeTensors s1 = make_snake(rig, kChannels), s2 = make_snake(rig, kMiddle);
      const Buffer x = rig.buffer(kRows, kChannels, rig.normal(kRows * kChannels));
      const Buffer y = rig.device().allocate("y", Dtype::f32, kRows, kChannels),
                   z = rig.device().allocate("z", Dtype::f32, kRows * kStride, kMiddle);
      const Buffer d_state = rig.device().allocate("d", Dtype::f32, 6, kChannels),
                   u_state = rig.device().allocate("u", Dtype::f32, 1, kChannels),
                   c_state = rig.device().allocate("c", Dtype::f32, 6 * kDilation, kMiddle);
      std::uniform_int_distribution<int> chunk(1, most);
      for (int first = 0, n; first < kRows; first += n) {
        n = most == kRows ? kRows : std::min(chunk(rig.random()), kRows - first);
        const Lanes lanes = rig.lanes(plain_case(n));
        const Buffer part = z.row_range(first * kStride, n * kStride);
        rig.run([&](Ops& ops) {
          ops.depthwise({.x = x.row_range(first, n),
                         .weight = deep.weight,
                         .kernel = 7,
                         .state = d_state,
                         .out = y.row_range(first, n),
                         .lanes = lanes});
          ops.conv_transposed({.x = y.row_range(first, n),
                               .snake = s1.call(),
                               .weight = up.weight,
                               .kernel = 2 * kStride,
                               .stride = kStride,
                               .state = u_state,
                               .out = part,
                               .lanes = lanes});
          ops.conv({.x = part,
                    .snake = s2.call(),
                    .weight = w.weight,
                    .kernel = 7,
                    .dilation = kDilation,
                    .state = c_state,
                    .residual = part,
                    .out = part,
                    .lanes = lanes.upsampled(kStride)});
        });
      }
      results.push_back(rig.read(z));
      expect_same_bits(results.front(), results.back(), "chunks of at most " + std::to_string(most));
    }
}

/// Two lanes in one call give the bits of each alone.
TEST_P(PerTarget, LanesAreIndependent) {
  Rig rig(GetParam());
  constexpr int kRows = 31, kChannels = 24;
  const Tensor w = rig.load(WeightRole::convolution, {kChannels, kChannels, 7}, 0.2f);
  const SnakeTensors s = make_snake(rig, kChannels);
  const std::vector<float> x = rig.normal(2 * kRows * kChannels);
  const Buffer in = rig.buffer(2 * kRows, kChannels, x);
  const auto run = [&](const LaneCase& c, const Buffer& from) {
    const Buffer out = rig.device().allocate("out", Dtype::f32, c.total(), kChannels),
                 state = rig.device().allocate("state", Dtype::f32, c.slots * 18, kChannels);
    const Program program = rig.device().record("conv", [&](Ops& ops) {
      ops.conv({.x = from,
                .snake = s.call(),
                .weight = w.weight,
                .kernel = 7,
                .dilation = 3,
                .state = state,
                .out = out,
                .lanes = rig.lanes(c)});
    });
    rig.device().run(program);
    rig.device().run(program);  // the second time with history
    return rig.read(out);
  };
  const std::vector<float> both = run({"both", 2, kRows, 1, 2, {1, 0}, {}, {}, {}}, in);
  std::vector<float> alone = run(plain_case(kRows), in.row_range(0, kRows));
  const std::vector<float> second = run(plain_case(kRows), in.row_range(kRows, kRows));
  alone.insert(alone.end(), second.begin(), second.end());
  expect_same_bits(both, alone, "lanes");
}

/// 70,000 x 32 samples, more than the 65,535 tiles that stop other runtimes: one call equals 32 calls.
TEST(Conv, B032_VeryLongInput) {
  const int kRows = (rig_is_slow() ? 100 : 70'000) * 32;
  Rig rig;
  const Tensor w = rig.load(WeightRole::convolution, {1, 2, 3});
  std::vector<float> x(static_cast<size_t>(2 * kRows));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 1000) * 0.001f - 0.5f;
  const Buffer in = rig.buffer(kRows, 2, x), state = rig.device().allocate("state", Dtype::f32, 2, 2);
  std::vector<std::vector<float>> results;
  for (const int parts : {1, 32}) {
    const Buffer out = rig.device().allocate("out", Dtype::f32, kRows, 1);
    const Lanes lanes = rig.lanes(plain_case(kRows / parts));
    rig.device().zero(state);
    for (int p = 0; p < parts; ++p) {
      const int first = p * (kRows / parts);
      rig.run([&](Ops& ops) {
        ops.conv({.x = in.row_range(first, kRows / parts),
                  .weight = w.weight,
                  .kernel = 3,
                  .state = state,
                  .out = out.row_range(first, kRows / parts),
                  .lanes = lanes});
      });
    }
    results.push_back(rig.read(out));
  }
  expect_same_bits(results[0], results[1], "parts");
  EXPECT_NE(results[0].back(), 0);
}

}  // namespace
}  // namespace skald::backend::test
