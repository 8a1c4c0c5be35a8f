// rope_angles, qkv_rope and attention against double-precision references; rings and chunks.
#include <cmath>

#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

/// inv_freq as the reference computes it, in float32 steps.
float inverse_frequency(float theta, int head_dim, int i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
  return 1.0f / static_cast<float>(std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
}

TEST_P(PerTarget, RopeAnglesAreFloatProducts) {
  Rig rig(GetParam());
  for (const int head_dim : {2, 6, 64, 128})
    for (const LaneCase& c : lane_cases(3, 1, 9000)) {
      const Guarded out = rig.guarded(c.total(), head_dim);
      rig.run([&](Ops& ops) {
        ops.rope_angles({.theta = 1e6f, .head_dim = head_dim, .out = out.view, .lanes = rig.lanes(c)});
      });
      rig.expect_rows(out, c, 1, 1.2e-7, [&](int row, int column) {
        const int half = head_dim / 2;
        const float angle =
            static_cast<float>(c.position_of(row)) * inverse_frequency(1e6f, head_dim, column % half);
        return Expected{
            column < half ? std::cos(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)), 0};
      });
    }
}

TEST(Rope, StartOffsetMovesThePosition) {
  Rig rig;
  const LaneCase c = plain_case(1, 5);
  Lanes lanes = rig.lanes(c);
  lanes.start_offset = 7;
  const Guarded out = rig.guarded(1, 4);
  rig.run(
      [&](Ops& ops) { ops.rope_angles({.theta = 10000, .head_dim = 4, .out = out.view, .lanes = lanes}); });
  EXPECT_FLOAT_EQ(rig.read(out.view)[0], std::cos(12.0f));
}

struct QkvSizes {
  int inputs, heads, kv_heads, head_dim;
  bool head_norm;
};

/// The whole op in double precision for one row: [q | k | v].
struct QkvReference {
  const QkvSizes& s;
  const Tensor &norm, &wq, &wk, &wv, &q_norm, &k_norm;
  const std::vector<float>& rope;
  double epsilon;

  std::vector<Expected> head(const std::vector<double>& h, const Tensor& w, const Tensor* head_norm,
                             bool rotated, int row, int head) const {
    const auto d = static_cast<size_t>(s.head_dim);
    std::vector<Expected> x(d), y(d);
    double square = 0;
    for (size_t i = 0; i < d; ++i) {
      for (int k = 0; k < s.inputs; ++k)
        x[i] += h[static_cast<size_t>(k)] * w.at(head * s.head_dim + static_cast<int>(i), k);
      square += x[i].value * x[i].value / s.head_dim;
    }
    if (head_norm)
      for (size_t i = 0; i < d; ++i) {
        const double factor = head_norm->at(static_cast<int64_t>(i)) / std::sqrt(square + epsilon);
        x[i] = {x[i].value * factor, x[i].magnitude * std::abs(factor)};
      }
    if (!rotated) return x;
    const float* angles = &rope[static_cast<size_t>(row) * d];
    for (size_t i = 0; i < d / 2; ++i) {
      const double c = angles[i], sn = angles[d / 2 + i];
      y[i] = {x[i].value * c - x[i + d / 2].value * sn, x[i].magnitude + x[i + d / 2].magnitude};
      y[i + d / 2] = {x[i + d / 2].value * c + x[i].value * sn, x[i].magnitude + x[i + d / 2].magnitude};
    }
    return y;
  }
};

void check_qkv(Rig& rig, const LaneCase& c, const QkvSizes& s, bool ring) {
  const int qw = s.heads * s.head_dim, kw = s.kv_heads * s.head_dim, capacity = ring ? 5 : 40;
  const Tensor norm = rig.load(WeightRole::vector, {s.inputs});
  const Tensor wq = rig.load(WeightRole::matrix, {qw, s.inputs}),
               wk = rig.load(WeightRole::matrix, {kw, s.inputs}),
               wv = rig.load(WeightRole::matrix, {kw, s.inputs});
  const Tensor q_norm = rig.load(WeightRole::vector, {s.head_dim}),
               k_norm = rig.load(WeightRole::vector, {s.head_dim});
  std::vector<float> x, rope;
  const Guarded gx = rig.guarded_input(c, s.inputs, &x), grope = rig.guarded_input(c, s.head_dim, &rope);
  const Guarded q = rig.guarded(c.total(), qw), k = rig.guarded(c.slots * capacity, kw),
                v = rig.guarded(c.slots * capacity, kw);
  rig.run([&](Ops& ops) {
    ops.qkv_rope({.x = gx.view,
                  .norm = {Norm::rms, norm.weight, {}, 1e-6f},
                  .wq = wq.weight,
                  .wk = wk.weight,
                  .wv = wv.weight,
                  .q_norm = s.head_norm ? q_norm.weight : Weight{},
                  .k_norm = s.head_norm ? k_norm.weight : Weight{},
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .head_dim = s.head_dim,
                  .rope = grope.view,
                  .q = q.view,
                  .cache = {k.view, v.view, capacity, ring},
                  .lanes = rig.lanes(c)});
  });

  const QkvReference reference{s, norm, wq, wk, wv, q_norm, k_norm, rope, 1e-6};
  const auto hidden = [&](int row) {
    std::vector<double> h(static_cast<size_t>(s.inputs));
    double square = 0;
    for (int i = 0; i < s.inputs; ++i)
      square += std::pow(static_cast<double>(x[static_cast<size_t>(row * s.inputs + i)]), 2) / s.inputs;
    for (int i = 0; i < s.inputs; ++i)
      h[static_cast<size_t>(i)] = x[static_cast<size_t>(row * s.inputs + i)] *
                                  static_cast<double>(norm.at(i)) / std::sqrt(square + 1e-6);
    return h;
  };
  rig.expect_rows(q, c, 1, 3e-6, [&](int row, int column) {
    return reference.head(hidden(row), wq, s.head_norm ? &q_norm : nullptr, true, row,
                          column / s.head_dim)[static_cast<size_t>(column % s.head_dim)];
  });
  // In the cache, the row of every stored position; all others stay untouched.
  std::vector<int> owner(static_cast<size_t>(c.slots * capacity), -1);
  for (int r = 0; r < c.total(); ++r)
    if (c.is_valid(r)) owner[static_cast<size_t>(c.slot_of(r) * capacity + c.position_of(r) % capacity)] = r;
  LaneCase stored{c.name + ", cache", c.slots * capacity, 1, 1, 1, {}, {}, {}, {}};
  for (const int r : owner) stored.slot.push_back(r < 0 ? -1 : 0);
  for (const bool keys : {true, false})
    rig.expect_rows(keys ? k : v, stored, 1, 3e-6, [&](int row, int column) {
      const int from = owner[static_cast<size_t>(row)];
      return reference.head(hidden(from), keys ? wk : wv, keys && s.head_norm ? &k_norm : nullptr, keys, from,
                            column / s.head_dim)[static_cast<size_t>(column % s.head_dim)];
    });
}

TEST_P(PerTarget, QkvRope) {
  Rig rig(GetParam());
  for (const QkvSizes& s : {QkvSizes{9, 2, 1, 6, true}, {33, 4, 2, 10, false}, {20, 2, 2, 32, true}})
    for (const int rows : {1, 4})
      for (const LaneCase& c : lane_cases(rows, 1, 30)) check_qkv(rig, c, s, false);
}

TEST_P(PerTarget, QkvRopeOfRoundedWeights) {
  for (const char* weights : {"bf16", "int8"}) {
    Rig rig(GetParam(), 2, 1, weights);
    check_qkv(rig, lane_cases(4, 1, 30)[5], {130, 4, 2, 10, true}, false);
    check_qkv(rig, plain_case(1), {65, 16, 8, 32, true}, false);
  }
}

TEST_P(PerTarget, QkvRopeInARing) {
  Rig rig(GetParam());
  for (const LaneCase& c : lane_cases(4, 1, 30)) check_qkv(rig, c, {17, 4, 2, 16, false}, true);
}

struct AttentionSizes {
  int heads, kv_heads, head_dim, window;
};

void check_attention(Rig& rig, const LaneCase& c, const AttentionSizes& s, int capacity, bool ring,
                     float spread) {
  const int qw = s.heads * s.head_dim, kw = s.kv_heads * s.head_dim, group = s.heads / s.kv_heads;
  std::vector<float> q;
  const Guarded gq = rig.guarded_input(c, qw, &q, spread);
  const std::vector<float> k = rig.normal(int64_t{c.slots} * capacity * kw),
                           v = rig.normal(int64_t{c.slots} * capacity * kw);
  const Buffer bk = rig.buffer(c.slots * capacity, kw, k), bv = rig.buffer(c.slots * capacity, kw, v);
  const Guarded out = rig.guarded(c.total(), qw);
  const float scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
  rig.run([&](Ops& ops) {
    ops.attention({.q = gq.view,
                   .cache = {bk, bv, capacity, ring},
                   .heads = s.heads,
                   .kv_heads = s.kv_heads,
                   .head_dim = s.head_dim,
                   .scale = scale,
                   .window = s.window,
                   .out = out.view,
                   .lanes = rig.lanes(c)});
  });
  rig.expect_rows(out, c, 1, 4e-6, [&](int row, int column) {
    const int head = column / s.head_dim, kv = head / group, last = c.position_of(row);
    const int first = s.window > 0 ? std::max(0, last - s.window + 1) : 0;
    const auto at = [&](const std::vector<float>& cache, int p, int i) {
      const int64_t slot_row = int64_t{c.slot_of(row)} * capacity + p % capacity;
      return static_cast<double>(cache[static_cast<size_t>(slot_row * kw + kv * s.head_dim + i)]);
    };
    std::vector<double> score;
    double most = -1e300, total = 0;
    for (int p = first; p <= last; ++p) {
      double dot = 0;
      for (int i = 0; i < s.head_dim; ++i)
        dot += q[static_cast<size_t>(row * qw + head * s.head_dim + i)] * at(k, p, i);
      score.push_back(dot * static_cast<double>(scale));
      most = std::max(most, score.back());
    }
    for (double& x : score) x = std::exp(x - most), total += x;
    Expected y;
    for (int p = first; p <= last; ++p)
      y += score[static_cast<size_t>(p - first)] / total * at(v, p, column % s.head_dim);
    // Errors of the scores enter through the exponential.
    y.magnitude *= 1 + static_cast<double>(spread);
    return y;
  });
}

TEST_P(PerTarget, Attention) {
  Rig rig(GetParam());
  for (const AttentionSizes& s :
       {AttentionSizes{1, 1, 2, 0}, {4, 2, 6, 0}, {2, 2, 70, 0}, {6, 2, 128, 0}, {3, 3, 16, 4}})
    for (const int rows : {1, 3})
      for (const LaneCase& c : lane_cases(rows, 1, 60)) check_attention(rig, c, s, 70, false, 1);
}

TEST_P(PerTarget, AttentionInARing) {
  Rig rig(GetParam());
  for (const LaneCase& c : lane_cases(3, 1, 1000)) check_attention(rig, c, {2, 1, 20, 7}, 9, true, 1);
  for (const LaneCase& c : lane_cases(4, 1, 1000)) check_attention(rig, c, {2, 2, 64, 72}, 75, true, 1);
}

TEST_P(PerTarget, AttentionWithExtremeScores) {
  Rig rig(GetParam());
  check_attention(rig, plain_case(2, 50), {2, 1, 32, 0}, 64, false, 30);
}

/// A sequence through a windowed ring in chunks of any size gives the bits of one call, on any number of
/// threads.
TEST_P(PerTarget, ChunksGiveTheSameBits) {
  constexpr int kRows = 61, kInputs = 24, kHeads = 2, kDim = 20, kWindow = 7, kWidth = kHeads * kDim;
  std::vector<std::vector<float>> results;
  for (const int most : {kRows, 1, 5, 13})
    for (const int threads : rig_threads()) {
      Rig rig(GetParam(), threads, 3);
      const Tensor wq = rig.load(WeightRole::matrix, {kWidth, kInputs}),
                   wk = rig.load(WeightRole::matrix, {kWidth, kInputs}),
                   wv = rig.load(WeightRole::matrix, {kWidth, kInputs});
      const Buffer x = rig.buffer(kRows, kInputs, rig.normal(kRows * kInputs));
      const Buffer q = rig.buffer(kRows, kWidth, std::vector<float>(kRows * kWidth)),
                   out = rig.buffer(kRows, kWidth, std::vector<float>(kRows * kWidth));
      const Buffer rope = rig.buffer(kRows, kDim, std::vector<float>(kRows * kDim));
      const int capacity = kWindow - 1 + most;
      const KvCache cache{rig.device().allocate("k", Dtype::f32, capacity, kWidth),
                          rig.device().allocate("v", Dtype::f32, capacity, kWidth), capacity, true};
      std::uniform_int_distribution<int> chunk(1, most);
      for (int first = 0, n; first < kRows; first += n) {
        n = most == kRows ? kRows : std::min(chunk(rig.random()), kRows - first);
        const Lanes lanes = rig.lanes(plain_case(n, first));
        rig.run([&](Ops& ops) {
          ops.rope_angles(
              {.theta = 10000, .head_dim = kDim, .out = rope.row_range(first, n), .lanes = lanes});
          ops.qkv_rope({.x = x.row_range(first, n),
                        .norm = {},
                        .wq = wq.weight,
                        .wk = wk.weight,
                        .wv = wv.weight,
                        .heads = kHeads,
                        .kv_heads = kHeads,
                        .head_dim = kDim,
                        .rope = rope.row_range(first, n),
                        .q = q.row_range(first, n),
                        .cache = cache,
                        .lanes = lanes});
          ops.attention({.q = q.row_range(first, n),
                         .cache = cache,
                         .heads = kHeads,
                         .kv_heads = kHeads,
                         .head_dim = kDim,
                         .scale = 0.2f,
                         .window = kWindow,
                         .out = out.row_range(first, n),
                         .lanes = lanes});
        });
      }
      results.push_back(rig.read(out));
      expect_same_bits(results.front(), results.back(), "chunks of at most " + std::to_string(most));
    }
}

TEST(Attention, PositionsOutsideTheCacheAreErrors) {
  Rig rig;
  const Buffer k = rig.device().allocate("k", Dtype::f32, 8, 4),
               v = rig.device().allocate("v", Dtype::f32, 8, 4);
  const Buffer q = rig.buffer(2, 4, rig.normal(8)), out = rig.buffer(2, 4, rig.normal(8));
  const auto attend = [&](const KvCache& cache, int start, int window) {
    rig.run([&](Ops& ops) {
      ops.attention({.q = q,
                     .cache = cache,
                     .heads = 1,
                     .kv_heads = 1,
                     .head_dim = 4,
                     .scale = 1,
                     .window = window,
                     .out = out,
                     .lanes = rig.lanes(plain_case(2, start))});
    });
  };
  EXPECT_NO_THROW(attend({k, v, 8, false}, 6, 0));
  EXPECT_THROW(attend({k, v, 8, false}, 7, 0), Error);  // the second row would be position 8
  EXPECT_NO_THROW(attend({k, v, 8, true}, 700, 7));
  EXPECT_THROW(attend({k, v, 8, true}, 700, 8), Error);  // two rows overwrite a position the first one needs
}

}  // namespace
}  // namespace skald::backend::test
