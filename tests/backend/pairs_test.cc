// compute "fast": what quantising does, and products of integer pairs against a double-precision reference
// over the rounded numbers; independence of rows, chunks, threads and targets.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

using cpu::kPairBlock;

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

/// A quantised row, read as its format says.
struct Quantised {
  std::vector<float> scales;
  std::vector<int> integers;
  float at(size_t i) const { return scales[i / kPairBlock] * static_cast<float>(integers[i]); }
};

Quantised quantise(const std::string& target, const std::vector<float>& x) {
  const int n = static_cast<int>(x.size());
  std::vector<float> words(static_cast<size_t>(cpu::row_words(cpu::Layout::pairs16, n)) + 1, -7.0f);
  cpu::find_kernels(target)->quantise(x.data(), n, words.data());
  EXPECT_EQ(words.back(), -7.0f) << "written beyond the row";
  Quantised q;
  const float* from = words.data();
  for (int first = 0; first < n; first += kPairBlock) {
    q.scales.push_back(*from++);
    int16_t block[kPairBlock];
    const int count = std::min(kPairBlock, n - first), pairs = (count + 1) / 2;
    std::memcpy(block, from, static_cast<size_t>(pairs) * 4);
    q.integers.insert(q.integers.end(), block, block + count);
    EXPECT_TRUE(count % 2 == 0 || block[count] == 0);
    from += pairs;
  }
  return q;
}

double length(const int* block, int n) {
  double square = 0;
  for (int i = 0; i < n; ++i) square += static_cast<double>(block[i]) * block[i];
  return std::sqrt(square);
}

TEST_P(PerTarget, QuantisedRows) {
  Rig rig(GetParam());
  for (const int n : {1, 2, 3, 15, 16, 17, 96, 127, 128, 129, 1000, 1024}) {
    std::vector<float> x = rig.normal(n, 3);
    if (n == 1000) std::fill_n(x.begin() + 128, 128, 0.125f), x[300] = 400;  // equal values; one that rules
    const Quantised q = quantise(GetParam(), x);
    for (int first = 0; first < n; first += kPairBlock) {
      const int count = std::min(kPairBlock, n - first);
      const float scale = q.scales[static_cast<size_t>(first / kPairBlock)];
      int largest = 0;
      for (int i = first; i < first + count; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_LE(std::abs(static_cast<double>(x[at]) / scale - q.integers[at]), 0.505) << n << ", " << i;
        largest = std::max(largest, std::abs(q.integers[at]));
      }
      const double size = length(q.integers.data() + first, count);
      EXPECT_LT(size * size, 0x1p31) << "two such blocks may overflow";
      EXPECT_TRUE(size > 46290 || largest == 32767) << "bits are left: " << size << ", " << largest;
    }
  }
}

TEST_P(PerTarget, QuantisedEdges) {
  std::vector<float> x(7 * kPairBlock, 1.0f);
  const auto block = [&](int b) { return x.begin() + b * kPairBlock; };
  std::fill_n(block(0), kPairBlock, 0.0f);
  std::fill_n(block(1), kPairBlock, 9e-16f);  // their squares would be too small
  *block(2) = std::nanf("");
  *block(3) = -INFINITY;
  std::fill_n(block(4), kPairBlock, 3e18f);   // their squares overflow
  std::fill_n(block(5), kPairBlock, 2e-15f);  // the smallest that count
  const Quantised q = quantise(GetParam(), x);
  for (const size_t b : {0u, 1u}) EXPECT_EQ(q.scales[b], 0);
  for (const size_t b : {2u, 3u, 4u}) EXPECT_TRUE(std::isnan(q.scales[b])) << b;
  for (int i = 0; i < 5 * kPairBlock; ++i) EXPECT_EQ(q.integers[static_cast<size_t>(i)], 0) << i;
  EXPECT_NEAR(q.at(5 * kPairBlock), 2e-15f, 4e-19f);
  EXPECT_NEAR(q.at(6 * kPairBlock), 1, 2e-4);
}

/// Weights as pairs16 hold them: one factor for all blocks of an output, of every tap.
/// [outputs][taps][inputs].
std::vector<double> rounded_weights(const std::vector<float>& w, int outputs, int taps, int inputs) {
  std::vector<double> rounded(w.begin(), w.end());
  for (int o = 0; o < outputs; ++o) {
    double factor = INFINITY;
    double* const of_output = rounded.data() + static_cast<int64_t>(o) * taps * inputs;
    for (int t = 0; t < taps; ++t)
      for (int first = 0; first < inputs; first += kPairBlock) {
        double square = 0, largest = 0;
        for (int i = first; i < std::min(inputs, first + kPairBlock); ++i) {
          const double v = std::abs(of_output[t * inputs + i]);
          square += v * v, largest = std::max(largest, v);
        }
        if (largest > 0) factor = std::min({factor, 46300 / std::sqrt(square), 32767 / largest});
      }
    for (int i = 0; i < taps * inputs; ++i) of_output[i] = std::nearbyint(of_output[i] * factor) / factor;
  }
  return rounded;
}

// A value at the border of two integers may round the other way in the reference; that is the tolerance.
constexpr double kTolerance = 3e-5;

void check_linear(const std::string& target, const char* weights, const LaneCase& c, int inputs, int outputs,
                  bool with_norm) {
  Rig rig(target, 2, 5, weights);
  Tensor w = rig.load(WeightRole::matrix, {outputs, inputs});
  const Tensor norm =
      rig.load(WeightRole::vector, {inputs}, std::vector<float>(static_cast<size_t>(inputs), 1));
  std::vector<float> x;
  const Guarded gx = rig.guarded_input(c, inputs, &x), out = rig.guarded(c.total(), outputs);
  rig.run([&](Ops& ops) {
    ops.linear({.x = gx.view,
                .norm = {with_norm ? Norm::rms : Norm::none, with_norm ? norm.weight : Weight{}, {}, 0},
                .weight = w.weight,
                .out = out.view,
                .lanes = rig.lanes(c)});
  });
  const bool int8 = weights == std::string("fast int8");
  if (int8) w.values = as_held("int8", w.shape, std::move(w.values));
  const std::vector<double> held = int8 ? std::vector<double>(w.values.begin(), w.values.end())
                                        : rounded_weights(w.values, outputs, 1, inputs);
  std::vector<Quantised> rows;
  std::vector<double> gains;  // a norm without weights is one factor
  for (int r = 0; r < c.total(); ++r) {
    const std::vector<float> row(x.begin() + int64_t{r} * inputs, x.begin() + int64_t{r + 1} * inputs);
    double square = 0;
    for (const float v : row) square += static_cast<double>(v) * v / inputs;
    gains.push_back(with_norm ? 1 / std::sqrt(square) : 1);
    rows.push_back(quantise(target, row));
  }
  rig.expect_rows(out, c, 1, kTolerance, [&](int row, int column) {
    Expected sum;
    for (int k = 0; k < inputs; ++k)
      sum += gains[static_cast<size_t>(row)] * rows[static_cast<size_t>(row)].at(static_cast<size_t>(k)) *
             held[static_cast<size_t>(column * inputs + k)];
    return sum;
  });
}

TEST_P(PerTarget, LinearOverRoundedNumbers) {
  for (const char* weights : {"fast auto", "fast int8"})
    for (const int rows : {1, 3, 49})
      for (const size_t pattern : {1, 5})
        for (const auto& [inputs, outputs] : {std::pair{1, 1}, {3, 17}, {64, 80}, {129, 65}, {321, 130}}) {
          if (rows == 49 && inputs != 321) continue;
          for (const bool with_norm : {false, true})
            check_linear(GetParam(), weights, lane_cases(rows)[pattern], inputs, outputs, with_norm);
        }
}

/// Causal convolutions from an empty state: taps of `stride` phases over rounded rows.
struct ConvCase {
  int inputs, outputs, kernel, dilation, stride;  // stride > 0: transposed
};

void check_conv(const std::string& target, const ConvCase& s, int rows) {
  Rig rig(target, 2, 9, "fast int8");  // the precision of matrices does not matter
  const bool up = s.stride > 0;
  const int phases = up ? s.stride : 1, taps = up ? s.kernel / s.stride : s.kernel;
  const LaneCase c = plain_case(rows);
  const Tensor w = up ? rig.load(WeightRole::transposed_convolution, {s.inputs, s.outputs, s.kernel})
                      : rig.load(WeightRole::convolution, {s.outputs, s.inputs, s.kernel});
  std::vector<float> x;
  const Guarded gx = rig.guarded_input(c, s.inputs, &x), out = rig.guarded(rows * phases, s.outputs);
  const int history = (taps - 1) * (up ? 1 : s.dilation);
  const Buffer state = history > 0 ? rig.device().allocate("state", Dtype::f32, history, s.inputs) : Buffer{};
  rig.run([&](Ops& ops) {
    if (up)
      ops.conv_transposed({.x = gx.view,
                           .weight = w.weight,
                           .kernel = s.kernel,
                           .stride = s.stride,
                           .state = state,
                           .out = out.view,
                           .lanes = rig.lanes(c)});
    else
      ops.conv({.x = gx.view,
                .weight = w.weight,
                .kernel = s.kernel,
                .dilation = s.dilation,
                .state = state,
                .out = out.view,
                .lanes = rig.lanes(c)});
  });
  std::vector<float> ordered;  // [outputs][kernel][inputs]
  for (int o = 0; o < s.outputs; ++o)
    for (int j = 0; j < s.kernel; ++j)
      for (int i = 0; i < s.inputs; ++i) ordered.push_back(up ? w.at(i, o, j) : w.at(o, i, j));
  const std::vector<double> held = rounded_weights(ordered, s.outputs, s.kernel, s.inputs);
  std::vector<Quantised> q;
  for (int r = 0; r < rows; ++r)
    q.push_back(quantise(target, {x.begin() + int64_t{r} * s.inputs, x.begin() + int64_t{r + 1} * s.inputs}));
  rig.expect_rows(out, c, phases, kTolerance, [&](int row, int column) {
    const int at = row / phases, phase = row % phases;
    Expected sum;
    for (int t = 0; t < taps; ++t) {
      const int from = up ? at - t : at - (taps - 1 - t) * s.dilation, j = up ? phase + t * s.stride : t;
      if (from < 0) continue;
      for (int i = 0; i < s.inputs; ++i)
        sum += q[static_cast<size_t>(from)].at(static_cast<size_t>(i)) *
               held[static_cast<size_t>((column * s.kernel + j) * s.inputs + i)];
    }
    return sum;
  });
}

TEST_P(PerTarget, ConvolutionsOverRoundedNumbers) {
  for (const int rows : {2, 53})
    for (const ConvCase& s : {ConvCase{33, 33, 1, 1, 0},
                              {17, 20, 7, 3, 0},
                              {96, 96, 7, 1, 0},
                              {300, 33, 3, 2, 0},
                              {17, 20, 6, 0, 3},
                              {130, 64, 4, 0, 2},
                              {9, 1, 4, 0, 1}})
      check_conv(GetParam(), s, rows);
}

/// The same rows in calls of every size, on one thread and on three, give the same bits.
TEST_P(PerTarget, RowsAreIndependentOfTheCall) {
  constexpr int kRows = 53, kInputs = 520, kOutputs = 150;
  for (const char* weights : {"fast auto", "fast int8"}) {
    std::vector<std::vector<float>> results;
    for (const int threads : rig_threads())
      for (const int rows : {kRows, 1, 2, 5, 6, 7, 32}) {
        Rig rig(GetParam(), threads, 7, weights);
        const Tensor w = rig.load(WeightRole::matrix, {kOutputs, kInputs}),
                     norm = rig.load(WeightRole::vector, {kInputs});
        const Buffer in = rig.buffer(kRows, kInputs, rig.normal(kRows * kInputs)),
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
                         std::string(weights) + ", calls of " + std::to_string(rows));
      }
  }
}

/// A transposed and a dilated convolution with snakes over a sequence cut anywhere, on any target that fuses.
std::vector<float> convolve_in_chunks(const std::string& target, int threads, int most) {
  constexpr int kRows = 300, kChannels = 40, kMiddle = 24, kStride = 3, kDilation = 9;
  Rig rig(target, threads, 11, "fast auto");
  const Tensor up = rig.load(WeightRole::transposed_convolution, {kChannels, kMiddle, 2 * kStride}, 0.2f),
               w = rig.load(WeightRole::convolution, {kMiddle, kMiddle, 7}, 0.2f);
  const auto snake = [&](int channels) {
    return Snake{rig.load(WeightRole::vector, {channels}).weight,
                 rig.load(WeightRole::vector, {channels}).weight};
  };
  const Snake first_snake = snake(kChannels), second_snake = snake(kMiddle);
  const Buffer x = rig.buffer(kRows, kChannels, rig.normal(kRows * kChannels)),
               z = rig.device().allocate("z", Dtype::f32, kRows * kStride, kMiddle),
               up_state = rig.device().allocate("u", Dtype::f32, 1, kChannels),
               state = rig.device().allocate("c", Dtype::f32, 6 * kDilation, kMiddle);
  std::mt19937 random(static_cast<uint32_t>(most));
  for (int first = 0, n; first < kRows; first += n) {
    n = most == kRows ? kRows
                      : std::min(1 + static_cast<int>(random() % static_cast<uint32_t>(most)), kRows - first);
    const Lanes lanes = rig.lanes(plain_case(n));
    const Buffer part = z.row_range(first * kStride, n * kStride);
    rig.run([&](Ops& ops) {
      ops.conv_transposed({.x = x.row_range(first, n),
                           .snake = first_snake,
                           .weight = up.weight,
                           .kernel = 2 * kStride,
                           .stride = kStride,
                           .state = up_state,
                           .out = part,
                           .lanes = lanes});
      ops.conv({.x = part,
                .snake = second_snake,
                .weight = w.weight,
                .kernel = 7,
                .dilation = kDilation,
                .state = state,
                .residual = part,
                .out = part,
                .lanes = lanes.upsampled(kStride)});
    });
  }
  return rig.read(z);
}

TEST_P(PerTarget, ChunksGiveTheSameBits) {
  const std::vector<float> whole = convolve_in_chunks(GetParam(), 1, 300);
  for (const int most : {1, 4, 97})
    for (const int threads : rig_threads())
      expect_same_bits(whole, convolve_in_chunks(GetParam(), threads, most),
                       "chunks of " + std::to_string(most));
}

/// Integer sums are exact: with AVX512_VNNI or without, the bits are those of every target that fuses its
/// multiply-adds, and SSE and scalar code agree.
TEST(Pairs, TargetsAgree) {
  std::vector<float> fused, unfused;
  for (const std::string& target : cpu_targets()) {
    const bool fuses = target != "scalar" && target.find("SSE") == std::string::npos;
    std::vector<float>& first = fuses ? fused : unfused;
    const std::vector<float> here = convolve_in_chunks(target, 2, 50);
    if (first.empty()) first = here;
    expect_same_bits(first, here, target);
  }
}

TEST(Pairs, TensorsMarkedExactStayExact) {
  constexpr int kInputs = 70, kOutputs = 40;
  std::vector<std::vector<float>> results;
  for (const bool exact : {true, false})
    for (const char* weights : {"auto", "fast auto"}) {
      Rig rig("", 1, 3, weights);
      const std::vector<float> values = rig.normal(kInputs * kOutputs);
      const Weight w = rig.device().load(WeightRole::matrix, {.name = "w",
                                                              .shape = {kOutputs, kInputs},
                                                              .data = std::as_bytes(std::span(values)),
                                                              .exact = exact});
      const Buffer x = rig.buffer(1, kInputs, rig.normal(kInputs)),
                   out = rig.buffer(1, kOutputs, std::vector<float>(kOutputs));
      rig.run([&](Ops& ops) {
        ops.linear({.x = x, .weight = w, .out = out, .lanes = rig.lanes(plain_case(1))});
      });
      results.push_back(rig.read(out));
    }
  expect_same_bits(results[0], results[1], "exact");
  expect_same_bits(results[0], results[2], "without fast the mark changes nothing");
  EXPECT_NE(results[0], results[3]);
}

/// A value that is not finite spoils its own row, and a weight that is not finite its own output.
TEST_P(PerTarget, NanStaysWhereItBelongs) {
  constexpr int kInputs = 200, kOutputs = 20, kRows = 7;
  for (const char* weights : {"fast auto", "fast int8"}) {
    Rig rig(GetParam(), 2, 1, weights);
    std::vector<float> values = rig.normal(kOutputs * kInputs), x = rig.normal(kRows * kInputs);
    values[4 * kInputs + 150] = std::nanf("");
    x[3 * kInputs + 4] = INFINITY;
    const Tensor w = rig.load(WeightRole::matrix, {kOutputs, kInputs}, values);
    const Buffer in = rig.buffer(kRows, kInputs, x),
                 out = rig.buffer(kRows, kOutputs, std::vector<float>(140));
    rig.run([&](Ops& ops) {
      ops.linear({.x = in, .weight = w.weight, .out = out, .lanes = rig.lanes(plain_case(kRows))});
    });
    const std::vector<float> y = rig.read(out);
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i / kOutputs == 3 || i % kOutputs == 4) << i;
  }
}

/// The worst case of the bound on integer sums: two parallel blocks of the greatest length.
TEST_P(PerTarget, ParallelBlocksDoNotOverflow) {
  for (const int inputs : {2, 96, 128, 1024}) {
    Rig rig(GetParam(), 1, 1, "fast auto");
    for (const float sign : {1.0f, -1.0f}) {
      const Tensor w =
          rig.load(WeightRole::matrix, {1, inputs}, std::vector<float>(static_cast<size_t>(inputs), 0.3f));
      const Buffer x = rig.buffer(1, inputs, std::vector<float>(static_cast<size_t>(inputs), sign * 7)),
                   out = rig.buffer(1, 1, {0});
      rig.run([&](Ops& ops) {
        ops.linear({.x = x, .weight = w.weight, .out = out, .lanes = rig.lanes(plain_case(1))});
      });
      EXPECT_NEAR(rig.read(out)[0], sign * 2.1f * static_cast<float>(inputs), 1e-3 * inputs) << inputs;
    }
  }
}

TEST(Pairs, MatricesOfOneInputAreOfOneKind) {
  Rig rig("", 1, 1, "fast auto");
  const std::vector<float> values = rig.normal(64);
  const auto load = [&](bool exact) {
    return rig.device().load(
        WeightRole::matrix,
        {.name = "w", .shape = {8, 8}, .data = std::as_bytes(std::span(values)), .exact = exact});
  };
  const Tensor norm = rig.load(WeightRole::vector, {8});
  const Buffer x = rig.buffer(1, 8, rig.normal(8)), out = rig.buffer(1, 8, rig.normal(8));
  try {
    rig.run([&](Ops& ops) {
      ops.gated_pair({.x = x,
                      .norm = {Norm::rms, norm.weight, {}, 1e-6f},
                      .gate = load(true),
                      .up = load(false),
                      .out = out,
                      .lanes = rig.lanes(plain_case(1))});
    });
    FAIL() << "an exact and a fast matrix share one row";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
  }
}

TEST(Pairs, NamesAndSizes) {
  EXPECT_EQ(cpu_matrix_bytes("auto", true, "fast"), 2);
  EXPECT_EQ(cpu_matrix_bytes("f32", false, "fast"), 2);
  EXPECT_EQ(cpu_matrix_bytes("int8", true, "fast"), 1.0625);
  for (const char* name : {"", "quick", "Fast"}) try {
      make_cpu_backend({.compute = name});
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(e.what(), testing::HasSubstr("exact, fast"));
    }
}

}  // namespace
}  // namespace skald::backend::test
