// linear and gated_pair against a double-precision reference; independence of rows, threads and devices.
#include <gtest/gtest-spi.h>

#include <bit>
#include <cmath>

#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

double apply(Activation activation, double x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_erf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return std::max(0.0, x);
    case Activation::relu_tanh: return std::tanh(std::max(0.0, x));
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::elu: return x > 0 ? x : std::expm1(x);
  }
  return 0;
}

/// norm(x) of one row in double precision.
std::vector<double> normed(Norm::Kind kind, const float* x, int n, double epsilon, const Tensor& weight,
                           const Tensor& bias) {
  std::vector<double> y(x, x + n);
  if (kind == Norm::none) return y;
  double mean = 0, square = 0;
  if (kind == Norm::layer)
    for (const double v : y) mean += v / n;
  for (double& v : y) v -= mean, square += v * v / n;
  for (int i = 0; i < n; ++i) {
    y[static_cast<size_t>(i)] *= weight.at(i) / std::sqrt(square + epsilon);
    if (kind == Norm::layer) y[static_cast<size_t>(i)] += bias.at(i);
  }
  return y;
}

struct Options {
  Norm::Kind norm = Norm::none;
  Activation activation = Activation::none;
  bool bias = false, residual = false, scale = false, in_place = false;
};

void check_linear(Rig& rig, const LaneCase& c, int inputs, int outputs, const Options& o) {
  const Tensor w = rig.load(WeightRole::matrix, {outputs, inputs});
  const Tensor bias = rig.load(WeightRole::vector, {outputs}),
               scale = rig.load(WeightRole::vector, {outputs});
  const Tensor norm_weight = rig.load(WeightRole::vector, {inputs}),
               norm_bias = rig.load(WeightRole::vector, {inputs});
  std::vector<float> x, residual;
  const Guarded gx = rig.guarded_input(c, inputs, &x), gr = rig.guarded_input(c, outputs, &residual);
  const Guarded out = o.in_place ? gr : rig.guarded(c.total(), outputs);
  const double epsilon = 1e-6;
  Linear call{
      .x = gx.view, .weight = w.weight, .activation = o.activation, .out = out.view, .lanes = rig.lanes(c)};
  if (o.norm != Norm::none)
    call.norm = {o.norm, norm_weight.weight, o.norm == Norm::layer ? norm_bias.weight : Weight{},
                 static_cast<float>(epsilon)};
  if (o.bias) call.bias = bias.weight;
  if (o.residual) call.residual = gr.view;
  if (o.scale) call.scale = scale.weight;
  rig.run([&](Ops& ops) { ops.linear(call); });

  rig.expect_rows(out, c, 1, 2e-6, [&](int row, int column) {
    const std::vector<double> h =
        normed(o.norm, &x[static_cast<size_t>(row * inputs)], inputs, epsilon, norm_weight, norm_bias);
    Expected sum;
    for (int k = 0; k < inputs; ++k) sum += h[static_cast<size_t>(k)] * w.at(column, k);
    if (o.bias) sum += bias.at(column);
    Expected y{apply(o.activation, sum.value), sum.magnitude};
    if (o.scale) y = {y.value * scale.at(column), y.magnitude * std::abs(scale.at(column))};
    if (o.residual) y += residual[static_cast<size_t>(row * outputs + column)];
    return y;
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

TEST_P(PerTarget, LinearOnOddSizesAndAllLanePatterns) {
  Rig rig(GetParam());
  for (const int rows : {1, 2, 7})
    for (const LaneCase& c : lane_cases(rows))
      for (const auto& [inputs, outputs] :
           {std::pair{1, 1}, {3, 17}, {64, 80}, {256, 24}, {257, 65}, {1000, 9}, {2080, 17}})
        check_linear(rig, c, inputs, outputs, {});
}

TEST_P(PerTarget, LinearWithEveryEpilogue) {
  Rig rig(GetParam());
  const LaneCase c = lane_cases(5)[5];
  for (const Norm::Kind norm : {Norm::none, Norm::rms, Norm::layer})
    for (const Activation activation :
         {Activation::none, Activation::silu, Activation::gelu_erf, Activation::relu, Activation::relu_tanh,
          Activation::sigmoid, Activation::elu})
      for (int bits = 0; bits < 8; ++bits)
        check_linear(rig, c, 37, 45,
                     {norm, activation, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0,
                      (bits & 2) != 0 && (bits & 1) != 0});
}

TEST_P(PerTarget, LinearWithManyRowsUsesEveryTile) {
  Rig rig(GetParam());
  for (const int rows : {6, 11, 48, 49, 97})
    check_linear(rig, plain_case(rows), 300, 130, {Norm::rms, Activation::none, true, true, false, true});
}

TEST_P(PerTarget, NormAlone) {
  Rig rig(GetParam());
  for (const Norm::Kind kind : {Norm::rms, Norm::layer})
    for (const int n : {1, 5, 16, 31, 1024})
      for (const LaneCase& c : lane_cases(3)) {
        const Tensor weight = rig.load(WeightRole::vector, {n}), bias = rig.load(WeightRole::vector, {n});
        std::vector<float> x;
        const Guarded in = rig.guarded_input(c, n, &x), out = rig.guarded(c.total(), n);
        rig.run([&](Ops& ops) {
          ops.linear({.x = in.view,
                      .norm = {kind, weight.weight, kind == Norm::layer ? bias.weight : Weight{}, 1e-5f},
                      .out = out.view,
                      .lanes = rig.lanes(c)});
        });
        rig.expect_rows(out, c, 1, 1e-6, [&](int row, int column) {
          const auto h = normed(kind, &x[static_cast<size_t>(row * n)], n, 1e-5, weight, bias);
          return Expected{h[static_cast<size_t>(column)], 2 + std::abs(h[static_cast<size_t>(column)])};
        });
      }
}

void check_gated_pair(Rig& rig, const LaneCase& c, int inputs, int outputs) {
  const Tensor gate = rig.load(WeightRole::matrix, {outputs, inputs}, 0.3f),
               up = rig.load(WeightRole::matrix, {outputs, inputs}, 0.3f);
  const Tensor weight = rig.load(WeightRole::vector, {inputs});
  std::vector<float> x;
  const Guarded in = rig.guarded_input(c, inputs, &x), out = rig.guarded(c.total(), outputs);
  rig.run([&](Ops& ops) {
    ops.gated_pair({.x = in.view,
                    .norm = {Norm::rms, weight.weight, {}, 1e-6f},
                    .gate = gate.weight,
                    .up = up.weight,
                    .out = out.view,
                    .lanes = rig.lanes(c)});
  });
  rig.expect_rows(out, c, 1, 2e-6, [&](int row, int column) {
    const auto h = normed(Norm::rms, &x[static_cast<size_t>(row * inputs)], inputs, 1e-6, weight, weight);
    Expected g, u;
    for (int k = 0; k < inputs; ++k)
      g += h[static_cast<size_t>(k)] * gate.at(column, k), u += h[static_cast<size_t>(k)] * up.at(column, k);
    return Expected{apply(Activation::silu, g.value) * u.value, (1 + g.magnitude) * (1 + u.magnitude)};
  });
}

TEST_P(PerTarget, GatedPair) {
  Rig rig(GetParam());
  for (const int rows : {1, 9})
    for (const LaneCase& c : lane_cases(rows))
      for (const auto& size : {std::pair{5, 19}, {70, 144}})
        check_gated_pair(rig, c, size.first, size.second);
}

/// Against the weights as each packing holds them: full and cut runs of scales, blocks and panel groups.
TEST_P(PerTarget, RoundedWeights) {
  for (const char* weights : {"bf16", "int8"}) {
    Rig rig(GetParam(), 2, 1, weights);
    for (const int rows : {1, 3, 49})
      for (const size_t pattern : {1, 5}) {
        const LaneCase c = lane_cases(rows)[pattern];
        for (const auto& [inputs, outputs] :
             {std::pair{1, 1}, {3, 17}, {64, 80}, {129, 65}, {321, 130}, {2080, 17}}) {
          if (rows == 49 && inputs != 321) continue;
          check_linear(rig, c, inputs, outputs, {});
        }
      }
    const LaneCase c = lane_cases(5)[5];
    check_linear(rig, c, 200, 45, {Norm::rms, Activation::silu, true, true, true, true});
    check_gated_pair(rig, c, 70, 144);
    check_gated_pair(rig, plain_case(1), 321, 1200);  // several groups a task
  }
}

/// Rounded to bf16 or not, the weights of a bf16 checkpoint are the same numbers: every result has the same
/// bits, which makes bf16 the meaning of "auto".
TEST_P(PerTarget, Bf16WeightsOfBf16TensorsAreWithoutLoss) {
  constexpr int kInputs = 329, kOutputs = 210;
  std::vector<std::vector<float>> results;
  std::vector<size_t> sizes;
  for (const char* weights : {"f32", "bf16", "auto"})
    for (const int rows : {1, 5, 60}) {
      Rig rig(GetParam(), 2, 11, weights);
      std::vector<uint16_t> values;
      for (int i = 0; i < kInputs * kOutputs; ++i)
        values.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(rig.normal(1)[0]) >> 16));
      const Weight w = rig.device().load(WeightRole::matrix, {.name = "w",
                                                              .dtype = Dtype::bf16,
                                                              .shape = {kOutputs, kInputs},
                                                              .data = std::as_bytes(std::span(values))});
      sizes.push_back(rig.device().weight_bytes());
      const Buffer x = rig.buffer(60, kInputs, rig.normal(60 * kInputs)),
                   out = rig.buffer(60, kOutputs, std::vector<float>(60 * kOutputs));
      for (int first = 0; first < 60; first += rows)
        rig.run([&](Ops& ops) {
          ops.linear({.x = x.row_range(first, rows),
                      .weight = w,
                      .out = out.row_range(first, rows),
                      .lanes = rig.lanes(plain_case(rows))});
        });
      results.push_back(rig.read(out));
      expect_same_bits(results[0], results.back(), weights);
    }
  EXPECT_NE(results[0][0], 0);
  EXPECT_LT(sizes[3], sizes[0] * 0.52);
  EXPECT_EQ(sizes[3], sizes[6]);
}

/// The same rows in calls of every size, on one thread and on three, give the same bits.
TEST_P(PerTarget, RowsAreIndependentOfTheCall) {
  constexpr int kRows = 53, kInputs = 520, kOutputs = 150;
  for (const char* weights : {"f32", "bf16", "int8"}) {
    std::vector<std::vector<float>> results;
    for (const int threads : rig_threads())
      for (const int rows : {kRows, 1, 2, 5, 6, 7, 32}) {
        if (weights != std::string("f32") && rows != kRows && rows != 1 && rows != 7) continue;
        Rig rig(GetParam(), threads, 7, weights);
        const Tensor w = rig.load(WeightRole::matrix, {kOutputs, kInputs}),
                     norm = rig.load(WeightRole::vector, {kInputs});
        const std::vector<float> x = rig.normal(kRows * kInputs);
        const Buffer in = rig.buffer(kRows, kInputs, x),
                     out = rig.buffer(kRows, kOutputs, std::vector<float>(kRows * kOutputs));
        for (int first = 0; first < kRows; first += rows) {
          const int n = std::min(rows, kRows - first);
          rig.run([&](Ops& ops) {
            ops.linear({.x = in.row_range(first, n),
                        .norm = {Norm::layer, norm.weight, {}, 1e-5f},
                        .weight = w.weight,
                        .activation = Activation::gelu_erf,
                        .out = out.row_range(first, n),
                        .lanes = rig.lanes(plain_case(n))});
          });
        }
        results.push_back(rig.read(out));
        expect_same_bits(results.front(), results.back(),
                         std::string(weights) + ", calls of " + std::to_string(rows) + " rows");
      }
  }
}

/// What int8 makes of odd runs of weights, read back with unit vectors.
TEST_P(PerTarget, Int8Runs) {
  constexpr int kInputs = 130;
  Rig rig(GetParam(), 1, 5, "int8");
  std::vector<float> values = rig.normal(3 * kInputs);
  std::fill_n(values.begin(), 64, 0.0f);         // zero
  std::fill_n(values.begin() + 64, 64, 1e-40f);  // too small for a scale
  values[128] = -5, values[129] = 5;             // a cut run
  values[kInputs + 70] = std::nanf("");          // one bad run, the others stay
  values[2 * kInputs] = 1000;                    // the others of this run hardly count
  const Tensor w = rig.load(WeightRole::matrix, {3, kInputs}, values);
  std::vector<float> unit(kInputs * kInputs, 0.0f);
  for (size_t i = 0; i < kInputs; ++i) unit[i * kInputs + i] = 1;
  const Buffer x = rig.buffer(kInputs, kInputs, unit),
               out = rig.buffer(kInputs, 3, std::vector<float>(3 * kInputs));
  rig.run([&](Ops& ops) {
    ops.linear({.x = x, .weight = w.weight, .out = out, .lanes = rig.lanes(plain_case(kInputs))});
  });
  const std::vector<float> got = rig.read(out);
  const auto held = [&](int row, int input) { return got[static_cast<size_t>(input * 3 + row)]; };
  for (int i = 0; i < 128; ++i) EXPECT_EQ(held(0, i), 0) << i;
  EXPECT_FLOAT_EQ(held(0, 128), -5);
  EXPECT_FLOAT_EQ(held(0, 129), 5);
  for (int i = 0; i < kInputs; ++i) EXPECT_TRUE(std::isnan(held(1, i))) << "0 * NaN of the bad run";
  EXPECT_EQ(held(2, 0), 1000);
  for (int i = 1; i < 64; ++i) EXPECT_EQ(held(2, i), 0) << i;
  for (int i = 64; i < 128; ++i)  // half a step of the largest of this run
    EXPECT_NEAR(held(2, i), values[static_cast<size_t>(2 * kInputs + i)], 4.5 / 127 / 2) << i;
}

TEST(Linear, HalfPrecisionWeightsAreExact) {
  Rig rig;
  constexpr int kInputs = 40, kOutputs = 24;
  // Values that all three types hold exactly, so that every result must have the same bits.
  std::vector<float> values;
  for (int i = 0; i < kInputs * kOutputs; ++i) values.push_back(static_cast<float>(i % 61 - 30) * 0.0625f);
  std::vector<uint16_t> bf16, f16;
  for (const float v : values) {
    const auto bits = std::bit_cast<uint32_t>(v);
    bf16.push_back(static_cast<uint16_t>(bits >> 16));
    const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
    f16.push_back(v == 0
                      ? 0
                      : static_cast<uint16_t>((bits >> 16 & 0x8000u) | static_cast<uint32_t>(exponent) << 10 |
                                              (bits >> 13 & 0x3FFu)));
  }
  const auto load = [&](Dtype type, std::span<const std::byte> data) {
    return rig.device().load(WeightRole::matrix,
                             {.name = "w", .dtype = type, .shape = {kOutputs, kInputs}, .data = data});
  };
  const Weight weights[] = {load(Dtype::f32, std::as_bytes(std::span(values))),
                            load(Dtype::bf16, std::as_bytes(std::span(bf16))),
                            load(Dtype::f16, std::as_bytes(std::span(f16)))};
  const Buffer x = rig.buffer(1, kInputs, rig.normal(kInputs));
  std::vector<std::vector<float>> results;
  for (const Weight w : weights) {
    const Buffer out = rig.buffer(1, kOutputs, std::vector<float>(kOutputs));
    rig.run(
        [&](Ops& ops) { ops.linear({.x = x, .weight = w, .out = out, .lanes = rig.lanes(plain_case(1))}); });
    results.push_back(rig.read(out));
    expect_same_bits(results[0], results.back(), "type");
  }
  EXPECT_NE(results[0][0], 0);
}

/// Activations of a million stay finite and right (half-precision activations would overflow).
TEST_P(PerTarget, B111_LargeActivations) {
  Rig rig(GetParam());
  constexpr int kInputs = 96, kOutputs = 48;
  const Tensor w = rig.load(WeightRole::matrix, {kOutputs, kInputs}),
               norm = rig.load(WeightRole::vector, {kInputs});
  for (const bool with_norm : {false, true}) {
    const std::vector<float> x = rig.normal(kInputs, 1e6f);
    const LaneCase c = plain_case(1);
    const Buffer in = rig.buffer(1, kInputs, x);
    const Guarded out = rig.guarded(1, kOutputs);
    Norm n;
    if (with_norm) n = {Norm::rms, norm.weight, {}, 1e-6f};
    rig.run([&](Ops& ops) {
      ops.linear({.x = in,
                  .norm = n,
                  .weight = w.weight,
                  .activation = Activation::silu,
                  .out = out.view,
                  .lanes = rig.lanes(c)});
    });
    rig.expect_rows(out, c, 1, 2e-6, [&](int, int column) {
      const auto h = normed(n.kind, x.data(), kInputs, 1e-6, norm, norm);
      Expected sum;
      for (int k = 0; k < kInputs; ++k) sum += h[static_cast<size_t>(k)] * w.at(column, k);
      return Expected{apply(Activation::silu, sum.value), sum.magnitude};
    });
  }
}

/// A NaN in one row stays in that row.
TEST(Linear, NanStaysInItsRow) {
  Rig rig;
  const Tensor w = rig.load(WeightRole::matrix, {20, 30});
  std::vector<float> x = rig.normal(7 * 30);
  x[3 * 30 + 4] = std::nanf("");
  const Buffer in = rig.buffer(7, 30, x), out = rig.buffer(7, 20, std::vector<float>(140));
  for (const Activation a : {Activation::none, Activation::silu, Activation::gelu_erf, Activation::relu,
                             Activation::relu_tanh, Activation::sigmoid, Activation::elu}) {
    rig.run([&](Ops& ops) {
      ops.linear(
          {.x = in, .weight = w.weight, .activation = a, .out = out, .lanes = rig.lanes(plain_case(7))});
    });
    const std::vector<float> y = rig.read(out);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 20 == 3) << i;
  }
}

TEST(Linear, WrongShapesAreNamedWhenRecorded) {
  Rig rig;
  const Tensor w = rig.load(WeightRole::matrix, {20, 30});
  const Buffer x = rig.buffer(1, 29, rig.normal(29)), out = rig.buffer(1, 20, rig.normal(20));
  try {
    rig.run([&](Ops& ops) {
      ops.label("layer 3");
      ops.linear({.x = x, .weight = w.weight, .out = out, .lanes = rig.lanes(plain_case(1))});
    });
    FAIL() << "a matrix of the wrong width was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    EXPECT_NE(std::string(e.what()).find("layer 3"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("20 x 30, needs 20 x 29"), std::string::npos) << e.what();
  }
}

// Planted faults: the comparisons must notice them.
TEST(Rig, ComparisonsNoticeFaults) {
  EXPECT_EQ(difference(1.0f, {1.0, 1.0}, 1e-6), "");
  EXPECT_NE(difference(1.00001f, {1.0, 1.0}, 1e-6), "");
  EXPECT_NE(difference(std::nanf(""), {1.0, 1.0}, 1e-6), "");
  Rig rig;
  const LaneCase c = lane_cases(2)[5];
  const Guarded g = rig.guarded(c.total(), 4);
  rig.write(g.view.row_range(2, 1).columns(1, 1), {1});  // in a row of the idle lane
  EXPECT_NONFATAL_FAILURE(rig.expect_rows(g, {"idle", 3, 2, 1, 3, {-1, -1, -1}, {}, {}, {}}, 1, 1,
                                          [](int, int) { return Expected{}; }),
                          "written with 1");
}

}  // namespace
}  // namespace skald::backend::test
