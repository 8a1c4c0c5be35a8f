// Accuracy of the elementary functions, equality of the SIMD targets, lock step of two devices.
#include "backend/cpu/kernels.h"

#include <gtest/gtest-spi.h>

#include <cmath>

#include "backend/cpu/cpu.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(cpu_targets()),
                         [](const auto& p) { return p.param; });

/// Distance in units in the last place of the reference, where the smallest unit is that of `floor`.
double ulps(float got, double want, double floor) {
  const double size = std::max(std::abs(want), floor);
  return std::abs(static_cast<double>(got) - want) / std::exp2(std::floor(std::log2(size)) - 23);
}

std::vector<float> grid(float low, float high, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i)
    x.push_back(low + (high - low) * (static_cast<float>(i) + 0.37f) / static_cast<float>(n));
  return x;
}

std::vector<float> activate(const cpu::Kernels& k, Activation activation, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  float* out = y.data();
  k.finish(x.data(), 0, 1, static_cast<int>(x.size()), {.activation = activation}, nullptr, &out);
  return y;
}

TEST_P(PerTarget, SiluAccuracy) {
  const cpu::Kernels& k = *cpu::find_kernels(GetParam());
  for (const float range : {1.0f, 10.0f, 86.0f}) {
    const std::vector<float> x = grid(-range, range, 20'001), y = activate(k, Activation::silu, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, ulps(y[i], x[i] / (1 + std::exp(-static_cast<double>(x[i]))), 1e-36));
    EXPECT_LT(worst, 3) << range;
  }
  const std::vector<float> edge =
      activate(k, Activation::silu, {-1e6f, -200, -89, 0, 89, 1e6f, std::nanf("")});
  EXPECT_EQ(edge[0], 0);
  EXPECT_NEAR(edge[2], 0, 1e-36);
  EXPECT_EQ(edge[3], 0);
  EXPECT_EQ(edge[4], 89);
  EXPECT_EQ(edge[5], 1e6f);
  EXPECT_TRUE(std::isnan(edge[6]));
}

TEST_P(PerTarget, GeluAccuracy) {
  const cpu::Kernels& k = *cpu::find_kernels(GetParam());
  for (const float range : {0.5f, 3.0f, 12.0f}) {
    const std::vector<float> x = grid(-range, range, 20'001), y = activate(k, Activation::gelu_erf, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], want = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      // Near zero 1 + erf cancels as in the reference, so units are those of x / 2; further out the rounding
      // of x / sqrt 2 alone moves the tail by x^2 / 2 units.
      worst = std::max(
          worst, ulps(y[i], want, v > -1.5 ? std::abs(v) / 2 : 1e-33) / (2 + std::pow(std::min(0.0, v), 2)));
    }
    EXPECT_LT(worst, 1.5) << range;
  }
  const std::vector<float> edge = activate(k, Activation::gelu_erf, {-1e6f, -15, 0, 15, 1e6f, std::nanf("")});
  EXPECT_NEAR(edge[0], 0, 1e-30);
  EXPECT_EQ(edge[2], 0);
  EXPECT_EQ(edge[3], 15);
  EXPECT_EQ(edge[4], 1e6f);
  EXPECT_TRUE(std::isnan(edge[5]));
}

/// The encoders' activations; small results keep their digits, NaN stays NaN.
TEST_P(PerTarget, EncoderActivationAccuracy) {
  const cpu::Kernels& k = *cpu::find_kernels(GetParam());
  struct Function {
    Activation activation;
    double (*exact)(double);
  };
  const Function functions[] = {{Activation::relu, [](double v) { return std::max(0.0, v); }},
                                {Activation::elu, [](double v) { return v > 0 ? v : std::expm1(v); }},
                                {Activation::relu_tanh, [](double v) { return std::tanh(std::max(0.0, v)); }},
                                {Activation::sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }}};
  for (const Function& f : functions) {
    for (const float range : {1e-3f, 0.5f, 4.0f, 80.0f}) {
      const std::vector<float> x = grid(-range, range, 20'001), y = activate(k, f.activation, x);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], f.exact(x[i]), 1e-36));
      EXPECT_LT(worst, 4) << static_cast<int>(f.activation) << ", range " << range;
    }
    const std::vector<float> edge = activate(k, f.activation, {-1e30f, 0, 1e30f, std::nanf("")});
    for (const size_t i : {0, 1, 2}) EXPECT_EQ(edge[i], f.exact(i == 0 ? -1e30 : i == 1 ? 0 : 1e30f));
    EXPECT_TRUE(std::isnan(edge[3])) << static_cast<int>(f.activation);
  }
}

TEST_P(PerTarget, SnakeAccuracy) {
  const cpu::Kernels& k = *cpu::find_kernels(GetParam());
  for (const float range : {1.0f, 60.0f, 2000.0f, 9e5f, 3e7f}) {
    const std::vector<float> x = grid(-range, range, 20'001), one(x.size(), 1);
    // x + sin^2(x) would hide the sine behind x; beta makes it dominate where x is large.
    const float weight = std::exp2(std::ceil(std::log2(range)) + 24);
    const std::vector<float> inverse_beta(x.size(), weight);
    std::vector<float> y(x.size());
    k.snake(x.data(), one.data(), inverse_beta.data(), static_cast<int>(x.size()), y.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double s = std::sin(static_cast<double>(x[i]));
      // Near a zero of the sine x itself counts; the reduction is exact to about 2^-60 of pi.
      worst = std::max(
          worst, ulps(y[i], x[i] + static_cast<double>(weight) * s * s, 1e-3 * static_cast<double>(weight)));
    }
    EXPECT_LT(worst, 5) << range;  // of the square: twice the sine's own, and three roundings
  }
  const float bad[] = {std::nanf(""), INFINITY}, one[] = {1, 1};
  float y[2];
  k.snake(bad, one, one, 2, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST(Targets, B093_NamesAreFoundAndTheBestComesFirst) {
  for (const cpu::Kernels* k : cpu::usable_kernels()) EXPECT_EQ(cpu::find_kernels(cpu::target_name(*k)), k);
  EXPECT_EQ(cpu::find_kernels(""), cpu::usable_kernels().front());
  EXPECT_EQ(cpu::find_kernels("AVX"), nullptr);
}

// ---- one recorded program on two devices

/// A small decoder layer and a codec stage: every kind of op with arithmetic in it.
struct Network {
  Rig rig;
  Program program;

  explicit Network(const std::string& target, float fault = 0, const std::string& weights = "f32")
      : rig(target, 2, 99, weights) {
    constexpr int kRows = 5, kWidth = 48, kHeads = 4, kKv = 2, kDim = 12, kHidden = 70;
    const auto matrix = [&](int out, int in) { return rig.load(WeightRole::matrix, {out, in}, 0.2f).weight; };
    const auto vector = [&](int n) { return rig.load(WeightRole::vector, {n}).weight; };
    const auto buffer = [&](int rows, int width) {
      return rig.device().allocate("b", Dtype::f32, rows, width);
    };
    const Weight table = rig.load(WeightRole::table, {9, kWidth}).weight;
    const Norm rms{Norm::rms, vector(kWidth), {}, 1e-6f},
        layer{Norm::layer, vector(kWidth), vector(kWidth), 1e-5f};
    const Weight wq = matrix(kHeads * kDim, kWidth), wk = matrix(kKv * kDim, kWidth),
                 wv = matrix(kKv * kDim, kWidth), wo = matrix(kWidth, kHeads * kDim), qn = vector(kDim),
                 kn = vector(kDim);
    Tensor up_weight = rig.load(WeightRole::matrix, {kHidden, kWidth}, 0.2f);
    if (fault != 0)
      up_weight.values[1234] += fault,
          up_weight = rig.load(WeightRole::matrix, up_weight.shape, up_weight.values);
    const Weight gate = matrix(kHidden, kWidth), up = up_weight.weight, down = matrix(kWidth, kHidden),
                 wide = matrix(kHidden, kWidth), bias = vector(kHidden);
    const Weight deep = rig.load(WeightRole::depthwise, {kWidth, 1, 7}).weight,
                 tconv = rig.load(WeightRole::transposed_convolution, {kWidth, 20, 6}, 0.2f).weight,
                 conv = rig.load(WeightRole::convolution, {20, 20, 7}, 0.2f).weight;
    const Snake s1{vector(kWidth), vector(kWidth)}, s2{vector(20), vector(20)};
    const Lanes lanes = rig.lanes({"two", 2, kRows, 1, 2, {1, 0}, {kRows, 3}, {4, 0}, {}});
    const int n = 2 * kRows;
    const Buffer ids = rig.ints(n, 1, {1, 2, 3, 4, 5, 6, 7, 8, 0, 1});
    const KvCache cache{buffer(2 * 16, kKv * kDim), buffer(2 * 16, kKv * kDim), 16, false};
    const Buffer x = buffer(n, kWidth), rope = buffer(n, kDim), q = buffer(n, kHeads * kDim),
                 a = buffer(n, kHeads * kDim), h = buffer(n, kHidden), y = buffer(n, kWidth),
                 z = buffer(3 * n, 20);
    const Buffer d_state = buffer(2 * 6, kWidth), t_state = buffer(2, kWidth), c_state = buffer(2 * 18, 20);
    program = rig.device().record("network", [&](Ops& ops) {
      ops.label("layer 0");
      ops.gather_sum({.tables = {table}, .ids = ids, .out = x, .lanes = lanes});
      ops.rope_angles({.theta = 10000, .head_dim = kDim, .out = rope, .lanes = lanes});
      ops.qkv_rope({.x = x,
                    .norm = rms,
                    .wq = wq,
                    .wk = wk,
                    .wv = wv,
                    .q_norm = qn,
                    .k_norm = kn,
                    .heads = kHeads,
                    .kv_heads = kKv,
                    .head_dim = kDim,
                    .rope = rope,
                    .q = q,
                    .cache = cache,
                    .lanes = lanes});
      ops.attention({.q = q,
                     .cache = cache,
                     .heads = kHeads,
                     .kv_heads = kKv,
                     .head_dim = kDim,
                     .scale = 0.3f,
                     .out = a,
                     .lanes = lanes});
      ops.linear({.x = a, .weight = wo, .residual = x, .out = x, .lanes = lanes});
      ops.gated_pair({.x = x, .norm = rms, .gate = gate, .up = up, .out = h, .lanes = lanes});
      ops.linear({.x = h, .weight = down, .residual = x, .out = x, .lanes = lanes});
      ops.label("codec");
      ops.depthwise({.x = x, .weight = deep, .kernel = 7, .state = d_state, .out = y, .lanes = lanes});
      ops.linear({.x = y,
                  .norm = layer,
                  .weight = wide,
                  .bias = bias,
                  .activation = Activation::gelu_erf,
                  .out = h,
                  .lanes = lanes});
      ops.conv_transposed({.x = y,
                           .snake = s1,
                           .weight = tconv,
                           .kernel = 6,
                           .stride = 3,
                           .state = t_state,
                           .out = z,
                           .lanes = lanes});
      ops.conv({.x = z,
                .snake = s2,
                .weight = conv,
                .kernel = 7,
                .dilation = 3,
                .state = c_state,
                .residual = z,
                .clip = 3,
                .out = z,
                .lanes = lanes.upsampled(3)});
    });
  }
};

/// Runs two networks op by op and compares every output; "" or the first op that differs.
std::string lock_step(Network& a, Network& b, double tolerance) {
  const auto ops = a.rig.device().ops(a.program);
  if (ops.size() != b.rig.device().ops(b.program).size()) return "different programs";
  for (size_t i = 0; i < ops.size(); ++i) {
    a.rig.device().run_op(a.program, i);
    b.rig.device().run_op(b.program, i);
    for (size_t o = 0; o < ops[i].outputs.size(); ++o) {
      const std::vector<float> x = a.rig.read(ops[i].outputs[o]),
                               y = b.rig.read(b.rig.device().ops(b.program)[i].outputs[o]);
      double size = 0, error = 0;
      for (size_t e = 0; e < x.size(); ++e) {
        size = std::max(size, std::abs(static_cast<double>(x[e])));
        error = std::max(error, std::abs(static_cast<double>(x[e]) - static_cast<double>(y[e])));
      }
      if (!(error <= tolerance * size))
        return std::to_string(i) + " " + ops[i].kind + " (" + ops[i].label + ")";
    }
  }
  return "";
}

bool fused(const std::string& target) {
  return target != "scalar" && target.find("SSE") == std::string::npos;
}

/// Every pair of targets: equal bits among the fused and among the unfused ones, else close after eleven ops.
TEST(Targets, B110_LockStepOfOneProgram) {
  for (const std::string& a : cpu_targets())
    for (const std::string& b : cpu_targets()) {
      for (const char* weights : {"f32", "bf16", "int8"}) {
        Network first(a, 0, weights), second(b, 0, weights);
        EXPECT_EQ(lock_step(first, second, fused(a) == fused(b) ? 0 : 2e-5), "")
            << a << " and " << b << ", " << weights;
      }
    }
}

TEST(Targets, LockStepNamesTheFirstDifferentOp) {
  Network sound(""), faulty("", 0.01f);
  EXPECT_EQ(lock_step(sound, faulty, 3e-6), "5 gated_pair (layer 0)");
}

}  // namespace
}  // namespace skald::backend::test
