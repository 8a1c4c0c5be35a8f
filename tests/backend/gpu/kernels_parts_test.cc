// The parts that ops do not show by themselves: elementary functions, packing, the report to the host,
// faults, sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "kernel_device.h"
#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

double ulps(float got, double want) {
  const double size = std::max(std::abs(want), 1e-36);
  return std::abs(static_cast<double>(got) - want) / std::exp2(std::floor(std::log2(size)) - 23);
}

/// f of every element, through a norm-free linear op without a weight.
std::vector<float> activate(Rig& rig, Activation activation, const std::vector<float>& x) {
  const auto n = static_cast<int32_t>(x.size());
  const Buffer in = rig.buffer(1, n, x), out = rig.buffer(1, n, std::vector<float>(x.size()));
  rig.run([&](Ops& ops) {
    ops.linear({.x = in, .activation = activation, .out = out, .lanes = rig.lanes(plain_case(1))});
  });
  return rig.read(out);
}

std::vector<float> grid(float low, float high, int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i)
    x.push_back(low + (high - low) * (static_cast<float>(i) + 0.37f) / static_cast<float>(n));
  return x;
}

TEST(Functions, SiluGeluAndTheOthers) {
  Rig rig;
  for (const float range : {1.0f, 10.0f, 86.0f}) {
    const std::vector<float> x = grid(-range, range, 5001), y = activate(rig, Activation::silu, x);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LT(ulps(y[i], x[i] / (1 + std::exp(-static_cast<double>(x[i])))), 3) << x[i];
  }
  for (const float range : {0.5f, 3.0f, 12.0f}) {
    const std::vector<float> x = grid(-range, range, 5001), y = activate(rig, Activation::gelu_erf, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], want = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
      const double unit =
          std::exp2(std::floor(std::log2(std::max(v > -1.5 ? std::abs(v) / 2 : 1e-33, std::abs(want)))) - 23);
      ASSERT_LT(std::abs(y[i] - want) / unit / (2 + std::pow(std::min(0.0, v), 2)), 1.5) << x[i];
    }
  }
  for (const Activation a : {Activation::silu, Activation::gelu_erf, Activation::relu, Activation::relu_tanh,
                             Activation::sigmoid, Activation::elu}) {
    const std::vector<float> edge = activate(rig, a, {-1e6f, 1e6f, std::nanf("")});
    EXPECT_TRUE(std::isfinite(edge[0]) && std::isfinite(edge[1]) && std::isnan(edge[2]))
        << static_cast<int>(a);
  }
}

/// The snake through a convolution of width 1 with weight 1.
TEST(Functions, SnakeAtEverySize) {
  Rig rig;
  const Weight one = rig.load(WeightRole::vector, {1}, std::vector<float>{1}).weight,
               weight = rig.load(WeightRole::convolution, {1, 1, 1}, std::vector<float>{1}).weight;
  for (const float range : {1.0f, 60.0f, 2000.0f, 9e5f, 1.2e6f, 3e7f, 1e12f, 4e34f}) {
    const std::vector<float> x = grid(-range, range, 4001);
    const auto n = static_cast<int32_t>(x.size());
    const Buffer in = rig.buffer(n, 1, x), out = rig.buffer(n, 1, std::vector<float>(x.size()));
    rig.run([&](Ops& ops) {
      ops.conv(
          {.x = in, .snake = {one, one}, .weight = weight, .out = out, .lanes = rig.lanes(plain_case(n))});
    });
    const std::vector<float> y = rig.read(out);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], want = v + std::pow(std::sin(v), 2);
      ASSERT_LE(std::abs(y[i] - want), 2e-7 + 1.2e-7 * std::abs(want)) << v;
    }
  }
}

TEST(Functions, SnakeKeepsTheSineNotOnlyTheSum) {
  // x is cancelled by the weight's second tap being absent: look at small x, where sin^2 is most of the
  // digits left.
  Rig rig;
  const Weight big = rig.load(WeightRole::vector, {1}, std::vector<float>{1e6f}).weight,
               one = rig.load(WeightRole::vector, {1}, std::vector<float>{1}).weight,
               weight = rig.load(WeightRole::convolution, {1, 1, 1}, std::vector<float>{1}).weight;
  const std::vector<float> x = grid(-1, 1, 4001);  // alpha 1e6: angles up to a million; and beyond with 1e8
  for (const float alpha : {1.0f, 1e3f, 1e6f, 1e8f, 1e20f}) {
    const Weight scale = rig.load(WeightRole::vector, {1}, std::vector<float>{alpha}).weight;
    const auto n = static_cast<int32_t>(x.size());
    const Buffer in = rig.buffer(n, 1, x), out = rig.buffer(n, 1, std::vector<float>(x.size()));
    rig.run([&](Ops& ops) {
      ops.conv(
          {.x = in, .snake = {scale, one}, .weight = weight, .out = out, .lanes = rig.lanes(plain_case(n))});
    });
    const std::vector<float> y = rig.read(out);
    for (size_t i = 0; i < x.size(); ++i) {
      const double angle = static_cast<double>(x[i] * alpha), want = x[i] + std::pow(std::sin(angle), 2);
      ASSERT_NEAR(y[i], want, 3e-7) << x[i] << " * " << alpha;
    }
  }
  (void)big;
}

TEST(Functions, InfinityAndNanReachTheOutput) {
  Rig rig;
  const Weight one = rig.load(WeightRole::vector, {1}, std::vector<float>{1}).weight,
               weight = rig.load(WeightRole::convolution, {1, 1, 1}, std::vector<float>{1}).weight;
  const Buffer in = rig.buffer(2, 1, {std::nanf(""), std::numeric_limits<float>::infinity()}),
               out = rig.buffer(2, 1, {0, 0});
  rig.run([&](Ops& ops) {
    ops.conv({.x = in,
              .snake = {one, one},
              .weight = weight,
              .clip = 1,
              .out = out,
              .lanes = rig.lanes(plain_case(2))});
  });
  for (const float y : rig.read(out)) EXPECT_TRUE(std::isnan(y)) << y;
}

// ---- products

/// One row with many inputs has a kernel of its own, as have two, four and many rows: all give the same bits.
TEST(Products, EveryKernelGivesTheSameBits) {
  constexpr int kRows = 21, kOutputs = 20;
  for (const char* weights : {"f32", "bf16", "int8"})
    for (const int inputs : {250, 2080}) {
      std::vector<std::vector<float>> results;
      for (const int rows : {kRows, 1, 2, 4, 7}) {
        Rig rig("", 1, 7, weights);
        const Tensor w = rig.load(WeightRole::matrix, {kOutputs, inputs}),
                     up = rig.load(WeightRole::matrix, {kOutputs, inputs}),
                     norm = rig.load(WeightRole::vector, {inputs});
        const Buffer x = rig.buffer(kRows, inputs, rig.normal(int64_t{kRows} * inputs));
        const Buffer out = rig.buffer(kRows, 2 * kOutputs, std::vector<float>(2 * kRows * kOutputs));
        for (int first = 0; first < kRows; first += rows) {
          const int n = std::min(rows, kRows - first);
          const Lanes lanes = rig.lanes(plain_case(n));
          const Norm rms{Norm::rms, norm.weight, {}, 1e-5f};
          const Buffer in = x.row_range(first, n), to = out.row_range(first, n);
          rig.run([&](Ops& ops) {
            ops.linear(
                {.x = in, .norm = rms, .weight = w.weight, .out = to.columns(0, kOutputs), .lanes = lanes});
            ops.gated_pair({.x = in,
                            .norm = rms,
                            .gate = w.weight,
                            .up = up.weight,
                            .out = to.columns(kOutputs, kOutputs),
                            .lanes = lanes});
          });
        }
        results.push_back(rig.read(out));
        expect_same_bits(results.front(), results.back(),
                         std::string(weights) + ", calls of " + std::to_string(rows) + " rows");
      }
      EXPECT_NE(results[0][0], 0);
    }
}

// ---- the report to the host

TEST(HostRing, EveryRunIsReportedWhateverTheStatus) {
  constexpr int kSlots = 3, kGroups = 3, kDepth = 4;
  Rig rig("simt32");
  auto& device = static_cast<gpu::test::KernelDevice&>(rig.device());
  device.listen(kSlots, kDepth, kGroups);
  SlotSettings settings;
  settings.max_frames = 3;
  std::vector<SlotSettings> all(kSlots, settings);
  SlotArrays a{.settings = rig.bytes(kSlots, sizeof(SlotSettings),
                                     std::vector<uint8_t>(kSlots * sizeof(SlotSettings))),
               .status = rig.ints(kSlots, 1, {kRunning, kStopToken, kRunning}),
               .position = rig.ints(kSlots, 1, {5, 6, 7}),
               .step = rig.ints(kSlots, 1, {1, 2, 3}),
               .sampled = rig.ints(kSlots, 1, {4, 5, 6}),
               .frames = rig.ints(kSlots, 1, {0, 9, 0}),
               .codes = rig.ints(kSlots, kGroups, {1, 2, 3, 4, 5, 6, 7, 8, 9}),
               .ring = rig.ints(kSlots * 2, kGroups, std::vector<int32_t>(kSlots * 2 * kGroups)),
               .cache_capacity = 100,
               .ring_frames = 2,
               .groups = kGroups};
  device.write(a.settings, std::as_bytes(std::span(all)));
  // Slot 2 is in no lane, lane 2 has no slot.
  const Lanes lanes{.lanes = 3, .rows = 1, .slot = rig.ints(3, 1, {1, 0, -1}), .gate = a.status};
  const Program p =
      device.record("publish", [&](Ops& ops) { ops.publish_frame({.slots = a, .lanes = lanes}); });
  for (int run = 1; run <= 6; ++run) {
    device.run(p);
    const std::vector<int> running = device.ring_entry(0, (run - 1) % kDepth),
                           stopped = device.ring_entry(1, (run - 1) % kDepth);
    const int frames = std::min(run, 3);
    EXPECT_EQ(std::vector<int>(running.begin(), running.begin() + 6),
              (std::vector<int>{run, run < 3 ? kRunning : kLength, frames, 5, 4, 1}));
    EXPECT_EQ(std::vector<int>(running.begin() + 8, running.begin() + 11), (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(std::vector<int>(stopped.begin(), stopped.begin() + 6),
              (std::vector<int>{run, kStopToken, 9, 6, 5, 2}));
    EXPECT_EQ(device.ring_entry(2, 0)[0], 0);
  }
}

// ---- faults

TEST(Faults, AreErrorsThatNameTheOp) {
  Rig rig;
  const Buffer x = rig.buffer(2, 3, rig.normal(6)), out = rig.buffer(2, 3, std::vector<float>(6));
  const auto copy = [&](const Lanes& lanes) {
    rig.run([&](Ops& ops) { ops.copy({.x = x, .out = out, .lanes = lanes}); });
  };
  const auto expect = [&](const Lanes& lanes, const std::string& text) {
    try {
      copy(lanes);
      ADD_FAILURE() << "no error: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::internal);
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
    EXPECT_EQ(rig.read(out), std::vector<float>(6)) << "an op with a fault wrote something";
  };
  Lanes lanes{.lanes = 1, .rows = 2, .slot = rig.ints(1, 1, {7}), .gate = rig.ints(3, 1, {1, 1, 1})};
  expect(lanes, "slot 7");
  lanes.slot = rig.ints(1, 1, {0});
  for (const int32_t count : {3, -1}) {
    lanes.count = rig.ints(1, 1, {count});
    expect(lanes, std::to_string(count));
  }
  lanes.count = {};
  copy(lanes);  // the fault is not remembered
  EXPECT_EQ(rig.read(out), rig.read(x));
}

TEST(Faults, StoredRowsAndPositions) {
  Rig rig;
  const Buffer out = rig.buffer(1, 2, {0, 0}), pad = rig.buffer(1, 2, {1, 1}),
               stored = rig.buffer(4, 2, rig.normal(8));
  const auto gather = [&](int32_t step) {
    rig.run([&](Ops& ops) {
      ops.gather_sum({.stored = stored,
                      .stored_count = rig.ints(2, 1, {9, 9}),
                      .stored_step = rig.ints(2, 1, {step, 0}),
                      .pad = pad,
                      .out = out,
                      .lanes = rig.lanes(plain_case(1))});
    });
  };
  EXPECT_NO_THROW(gather(1));
  EXPECT_THROW(gather(2), Error);
  EXPECT_THROW(gather(-1), Error);
  const auto store = [&](int32_t start) {
    rig.run([&](Ops& ops) {
      ops.store_rows({.x = out, .store = stored, .capacity = 2, .lanes = rig.lanes(plain_case(1, start))});
    });
  };
  EXPECT_NO_THROW(store(1));
  EXPECT_THROW(store(2), Error);
  EXPECT_THROW(store(-1), Error);
}

// ---- what no kernel serves is said while recording

TEST(Limits, AreErrorsWhileRecording) {
  Rig rig;
  const auto code_of = [&](const std::function<void(Ops&)>& body) {
    try {
      rig.device().record("limits", body);
      return ErrorCode::internal;
    } catch (const Error& e) {
      return e.code();
    }
  };
  const Lanes lanes = rig.lanes(plain_case(1));
  EXPECT_EQ(
      code_of([&](Ops& ops) {
        ops.rope_angles(
            {.theta = 10000, .head_dim = 258, .out = rig.buffer(1, 258, rig.normal(258)), .lanes = lanes});
      }),
      ErrorCode::unsupported);
  const std::vector<Weight> tables(33, rig.load(WeightRole::table, {2, 2}).weight);
  EXPECT_EQ(code_of([&](Ops& ops) {
              ops.gather_sum({.tables = tables,
                              .ids = rig.ints(1, 33, std::vector<int32_t>(33)),
                              .out = rig.buffer(1, 2, {0, 0}),
                              .lanes = lanes});
            }),
            ErrorCode::unsupported);
}

/// Blocks that share a row count themselves; the count must be back at zero for the next run.
TEST(AttentionSplits, EveryRunOfAProgramWrites) {
  constexpr int kCapacity = 700, kDim = 16;
  Rig rig;
  const KvCache cache{rig.buffer(kCapacity, kDim, rig.normal(kCapacity * kDim)),
                      rig.buffer(kCapacity, kDim, rig.normal(kCapacity * kDim)), kCapacity, false};
  const Buffer q = rig.buffer(2, kDim, rig.normal(2 * kDim)),
               out = rig.buffer(2, kDim, std::vector<float>(2 * kDim));
  const Program p = rig.device().record("twice", [&](Ops& ops) {
    ops.attention({.q = q,
                   .cache = cache,
                   .heads = 1,
                   .kv_heads = 1,
                   .head_dim = kDim,
                   .scale = 0.3f,
                   .out = out,
                   .lanes = rig.lanes(plain_case(2, 600))});
  });
  rig.device().run(p);
  const std::vector<float> first = rig.read(out);
  for (int run = 0; run < 3; ++run) {
    rig.write(out, std::vector<float>(2 * kDim, std::nanf("")));
    rig.device().run(p);
    expect_same_bits(first, rig.read(out), "run " + std::to_string(run));
  }
  EXPECT_NE(first[0], 0);
}

/// Long caches are cut into ranges of keys for several blocks: same results as short ones within rounding,
/// for any number of keys, and the same bits for the same keys in a chunk of rows.
TEST(AttentionSplits, ManyKeys) {
  constexpr int kCapacity = 700, kDim = 32;
  Rig rig("simt32");
  const std::vector<float> k = rig.normal(kCapacity * kDim), v = rig.normal(kCapacity * kDim);
  const KvCache cache{rig.buffer(kCapacity, kDim, k), rig.buffer(kCapacity, kDim, v), kCapacity, false};
  const std::vector<float> q = rig.normal(3 * 2 * kDim);
  const Buffer bq = rig.buffer(3, 2 * kDim, q), out = rig.buffer(3, 2 * kDim, std::vector<float>(6 * kDim)),
               one = rig.buffer(1, 2 * kDim, std::vector<float>(2 * kDim));
  for (const int start : {0, 1, 61, 62, 63, 64, 126, 127, 128, 250, 500, 697}) {
    const auto attend = [&](const Buffer& from, const Buffer& to, int first) {
      rig.run([&](Ops& ops) {
        ops.attention({.q = from,
                       .cache = cache,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = kDim,
                       .scale = 0.3f,
                       .out = to,
                       .lanes = rig.lanes(plain_case(from.rows, first))});
      });
    };
    attend(bq, out, start);
    for (int r = 0; r < 3; ++r) {
      attend(bq.row_range(r, 1), one, start + r);
      expect_same_bits(rig.read(out.row_range(r, 1)), rig.read(one), "row " + std::to_string(r));
      for (int head = 0; head < 2; ++head) {
        double most = -1e300, total = 0;
        std::vector<double> score, sum(kDim);
        for (int p = 0; p <= start + r; ++p) {
          double dot = 0;
          for (int i = 0; i < kDim; ++i)
            dot += static_cast<double>(q[static_cast<size_t>((r * 2 + head) * kDim + i)]) *
                   k[static_cast<size_t>(p * kDim + i)];
          score.push_back(dot * 0.3f);
          most = std::max(most, score.back());
        }
        for (double& s : score) s = std::exp(s - most), total += s;
        for (size_t p = 0; p < score.size(); ++p)
          for (size_t i = 0; i < kDim; ++i) sum[i] += score[p] / total * v[p * kDim + i];
        const std::vector<float> got = rig.read(one);
        for (size_t i = 0; i < kDim; ++i)
          ASSERT_NEAR(got[static_cast<size_t>(head) * kDim + i], sum[i], 3e-6) << start << " " << r;
      }
    }
  }
}
}  // namespace
}  // namespace skald::backend::test
