// Fused launches leave the bits of the ops that they stand for; products on matrix units agree with the
// others.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <tuple>

#include "backend/gpu/fusion.h"
#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

// ---- fused launches

/// What a program does as it was recorded, and as fused launches, from the same start.
class FusedCase {
 public:
  explicit FusedCase(const std::string& device) : rig(device) {}

  gpu::test::KernelDevice& device() { return static_cast<gpu::test::KernelDevice&>(rig.device()); }

  /// Runs both from the same contents; `buffers` hold the same bits afterwards, and others than before.
  /// Returns the names of the fused launches.
  std::vector<std::string> check(const std::function<void(Ops&)>& body, const std::vector<Buffer>& buffers,
                                 const std::string& what) {
    std::vector<std::vector<uint8_t>> start, want;
    for (const Buffer& b : buffers) start.push_back(rig.read_bytes(bytes_of(b)));
    const Program p = device().record("fused", body);
    const auto run = [&](const std::vector<gpu::Launch>& launches) {
      for (const gpu::Launch& l : launches) device().executor().launch(l);
    };
    run(gpu::unfused(device().recorded(p)));
    for (const Buffer& b : buffers) want.push_back(rig.read_bytes(bytes_of(b)));
    EXPECT_NE(want, start) << what;
    for (size_t i = 0; i < buffers.size(); ++i)
      device().write(bytes_of(buffers[i]), std::as_bytes(std::span(start[i])));
    const std::vector<gpu::Launch> fused = gpu::fuse(device().recorded(p));
    run(fused);
    for (size_t i = 0; i < buffers.size(); ++i)
      EXPECT_EQ(rig.read_bytes(bytes_of(buffers[i])), want[i]) << what << ", buffer " << i;
    std::vector<std::string> names;
    for (const gpu::Launch& l : fused) names.push_back(l.kernel);
    return names;
  }

  Rig rig;

 private:
  /// A whole plain buffer as bytes.
  static Buffer bytes_of(const Buffer& b) {
    const auto bytes = static_cast<int32_t>(b.rows * b.width * static_cast<int64_t>(dtype_size(b.dtype)));
    return {.id = b.id, .dtype = Dtype::u8, .rows = 1, .width = bytes, .stride = bytes};
  }
};

struct FusedSizes {
  const char* name;
  int heads, kv_heads, head_dim, capacity, window;
  bool norm;
};

TEST(Fused, PlacedAttentionHasTheBitsOfBoth) {
  constexpr int kWidth = 40;
  for (const std::string& name : rig_devices())
    for (const FusedSizes& s : {FusedSizes{"pairs of heads", 4, 2, 32, 300, 0, true},
                                {"one head each", 2, 2, 128, 40, 0, true},
                                {"four heads a key", 8, 2, 16, 20, 0, false},
                                {"ring", 4, 4, 64, 24, 20, true},
                                {"three heads a key", 3, 1, 12, 150, 0, true},
                                {"odd", 3, 1, 10, 150, 0, true},
                                {"wide", 2, 1, 256, 12, 0, true}}) {
      FusedCase f(name);
      Rig& rig = f.rig;
      const int width = s.kv_heads * s.head_dim, slots = 4;
      const auto matrix = [&](int out) { return rig.load(WeightRole::matrix, {out, kWidth}, 0.2f).weight; };
      const Weight wq = matrix(s.heads * s.head_dim), wk = matrix(width), wv = matrix(width),
                   norm = rig.load(WeightRole::vector, {kWidth}).weight,
                   head_norm = rig.load(WeightRole::vector, {s.head_dim}).weight;
      const KvCache cache{
          rig.buffer(slots * s.capacity, width, rig.normal(int64_t{slots} * s.capacity * width)),
          rig.buffer(slots * s.capacity, width, rig.normal(int64_t{slots} * s.capacity * width)), s.capacity,
          s.window > 0};
      const int last = s.window > 0 ? 2 * s.capacity + 3 : s.capacity - 1;
      const Buffer x = rig.buffer(3, kWidth, rig.normal(3 * kWidth)),
                   rope = rig.buffer(3, s.head_dim, rig.normal(3 * s.head_dim)),
                   q = rig.buffer(3, s.heads * s.head_dim, rig.normal(3 * s.heads * s.head_dim)),
                   out = rig.buffer(3, s.heads * s.head_dim,
                                    std::vector<float>(static_cast<size_t>(3 * s.heads * s.head_dim)));
      for (const std::vector<int32_t>& start :
           {std::vector<int32_t>{0, 5, last, 3}, {last, 0, 8, 9}, {last - 1, 2, 1, last}}) {
        const Lanes lanes{.lanes = 3,
                          .rows = 1,
                          .slot = rig.ints(3, 1, {3, -1, 0}),
                          .start = rig.ints(slots, 1, start),
                          .gate = rig.ints(slots, 1, {1, 1, 1, 1})};
        const std::vector<std::string> names = f.check(
            [&](Ops& ops) {
              ops.qkv_rope({.x = x,
                            .norm = {Norm::rms, norm, {}, 1e-5f},
                            .wq = wq,
                            .wk = wk,
                            .wv = wv,
                            .q_norm = s.norm ? head_norm : Weight{},
                            .k_norm = s.norm ? head_norm : Weight{},
                            .heads = s.heads,
                            .kv_heads = s.kv_heads,
                            .head_dim = s.head_dim,
                            .rope = rope,
                            .q = q,
                            .cache = cache,
                            .lanes = lanes});
              ops.attention({.q = q,
                             .cache = cache,
                             .heads = s.heads,
                             .kv_heads = s.kv_heads,
                             .head_dim = s.head_dim,
                             .scale = 0.3f,
                             .window = s.window,
                             .out = out,
                             .lanes = lanes});
            },
            {cache.k, cache.v, out}, name + ", " + s.name);
        if (s.head_dim % 4 != 0) {  // read one number at a time, which no model needs: not worth a kernel
          EXPECT_EQ(names, (std::vector<std::string>{"product_f32_4", "place_heads", "attention_any_256_1"}));
          continue;
        }
        ASSERT_EQ(names.size(), 2u);
        EXPECT_TRUE(names[1].starts_with("attention_placed_")) << names[1];
      }
    }
}

TEST(Fused, SeveralRowsOfALaneAreNot) {
  FusedCase f("simt32");
  Rig& rig = f.rig;
  const Weight w = rig.load(WeightRole::matrix, {16, 8}).weight;
  const KvCache cache{rig.buffer(20, 16, rig.normal(320)), rig.buffer(20, 16, rig.normal(320)), 20, false};
  const Buffer x = rig.buffer(2, 8, rig.normal(16)), q = rig.buffer(2, 16, rig.normal(32)),
               rope = rig.buffer(2, 16, rig.normal(32)), out = rig.buffer(2, 16, std::vector<float>(32));
  const Lanes lanes = rig.lanes(plain_case(2, 4));
  const std::vector<std::string> names = f.check(
      [&](Ops& ops) {
        ops.qkv_rope({.x = x,
                      .wq = w,
                      .wk = w,
                      .wv = w,
                      .heads = 1,
                      .kv_heads = 1,
                      .head_dim = 16,
                      .rope = rope,
                      .q = q,
                      .cache = cache,
                      .lanes = lanes});
        ops.attention({.q = q,
                       .cache = cache,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_dim = 16,
                       .scale = 1,
                       .out = out,
                       .lanes = lanes});
      },
      {cache.k, cache.v, q, out}, "two rows");
  EXPECT_EQ(names.size(), 3u);
}

TEST(Fused, ADrawFeedsTheRowOfItsTable) {
  constexpr int kCodes = 50, kWidth = 24, kSlots = 3, kGroups = 4;
  for (const std::string& name : rig_devices()) {
    FusedCase f(name);
    Rig& rig = f.rig;
    std::vector<float> scores = rig.normal(3 * kCodes, 3);
    scores[kCodes + 3] = std::nanf("");  // the second lane cannot draw, and feeds nothing
    const Buffer logits = rig.buffer(3, kCodes, scores), out = rig.buffer(3, kWidth, rig.normal(3 * kWidth));
    SlotSettings settings;
    settings.seed_low = 5;
    SlotArrays a{.settings = rig.bytes(kSlots, sizeof(SlotSettings),
                                       std::vector<uint8_t>(kSlots * sizeof(SlotSettings))),
                 .status = rig.ints(kSlots, 1, {kRunning, kRunning, kRunning}),
                 .sampled = rig.ints(kSlots, 1, {4, 5, 6}),
                 .codes = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups, 7)),
                 .forced = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups, -1)),
                 .groups = kGroups};
    const std::vector<SlotSettings> all(kSlots, settings);
    f.device().write(a.settings, std::as_bytes(std::span(all)));
    const Weight table = rig.load(WeightRole::table, {kCodes, kWidth}).weight;
    const Lanes lanes{.lanes = 3, .rows = 1, .slot = rig.ints(3, 1, {2, 0, 1}), .gate = a.status};
    const std::vector<std::string> names = f.check(
        [&](Ops& ops) {
          ops.sample({.group = 2, .logits = logits, .codes = kCodes, .slots = a, .lanes = lanes});
          ops.gather_sum({.tables = {table},
                          .ids = a.codes.columns(2, 1),
                          .ids_by_slot = true,
                          .out = out,
                          .lanes = lanes});
          ops.gather_sum({.tables = {table},  // another code's row: not fused
                          .ids = a.codes.columns(1, 1),
                          .ids_by_slot = true,
                          .out = logits.columns(0, kWidth),
                          .lanes = lanes});
        },
        {a.codes, a.status, a.sampled, logits, out}, name);
    EXPECT_EQ(names, (std::vector<std::string>{"sample_feed", "gather_sum"}));
    EXPECT_EQ(rig.read_ints(a.status), (std::vector<int32_t>{kNonFinite, kRunning, kRunning}));
    const std::vector<std::string> apart = f.check(
        [&](Ops& ops) {
          ops.sample({.group = 2, .logits = logits, .codes = kCodes, .slots = a, .lanes = lanes});
          ops.gather_sum({.tables = {table},
                          .ids = a.codes.columns(1, 1),
                          .ids_by_slot = true,
                          .out = out,
                          .lanes = lanes});
        },
        {a.codes, a.status, a.sampled, logits, out}, name + ", another code");
    EXPECT_EQ(apart, (std::vector<std::string>{"sample", "gather_sum"}));
  }
}

// ---- matrix units

/// A linear layer, a gated pair and projections of many rows; everything that they leave.
std::vector<float> many_rows(const std::string& device, const LaneCase& c, int inputs, int outputs,
                             bool normed, std::string* first_kernel = nullptr) {
  Rig rig(device, 1, 5, "bf16");
  const Tensor w = rig.load(WeightRole::matrix, {outputs, inputs}, 0.3f),
               up = rig.load(WeightRole::matrix, {outputs, inputs}, 0.3f),
               norm = rig.load(WeightRole::vector, {inputs}), bias = rig.load(WeightRole::vector, {outputs});
  std::vector<float> x, residual;
  const Guarded gx = rig.guarded_input(c, inputs, &x, 3), gr = rig.guarded_input(c, outputs, &residual),
                linear = rig.guarded(c.total(), outputs), pair = rig.guarded(c.total(), outputs);
  const int heads = 2, dim = 8;
  const Tensor wq = rig.load(WeightRole::matrix, {heads * dim, inputs}, 0.3f),
               wk = rig.load(WeightRole::matrix, {dim, inputs}, 0.3f),
               wv = rig.load(WeightRole::matrix, {dim, inputs}, 0.3f);
  const KvCache cache{rig.buffer(4 * 90, dim, rig.normal(360 * dim)),
                      rig.buffer(4 * 90, dim, rig.normal(360 * dim)), 90, false};
  const Buffer rope = rig.buffer(c.total(), dim, rig.normal(int64_t{c.total()} * dim));
  const Guarded q = rig.guarded(c.total(), heads * dim);
  const Norm n = normed ? Norm{Norm::rms, norm.weight, {}, 1e-5f} : Norm{};
  const Program p = rig.device().record("many", [&](Ops& ops) {
    const Lanes lanes = rig.lanes(c);
    ops.linear({.x = gx.view,
                .norm = n,
                .weight = w.weight,
                .bias = bias.weight,
                .activation = Activation::silu,
                .residual = gr.view,
                .out = linear.view,
                .lanes = lanes});
    ops.gated_pair(
        {.x = gx.view, .norm = n, .gate = w.weight, .up = up.weight, .out = pair.view, .lanes = lanes});
    ops.qkv_rope({.x = gx.view,
                  .norm = n,
                  .wq = wq.weight,
                  .wk = wk.weight,
                  .wv = wv.weight,
                  .heads = heads,
                  .kv_heads = 1,
                  .head_dim = dim,
                  .rope = rope,
                  .q = q.view,
                  .cache = cache,
                  .lanes = lanes});
  });
  if (first_kernel)
    *first_kernel = static_cast<gpu::test::KernelDevice&>(rig.device()).recorded(p)[0].launches[1].kernel;
  rig.device().run(p);
  std::vector<float> all;
  for (const Buffer& b : {linear.whole, pair.whole, q.whole, cache.k, cache.v}) {
    const std::vector<float> part = rig.read(b);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(MatrixUnits, AgreeWithTheOtherKernels) {
  for (const auto& [rows, inputs, outputs] :
       {std::tuple(12, 40, 20), std::tuple(17, 300, 33), std::tuple(70, 64, 9), std::tuple(9, 250, 10)})
    for (const bool normed : {false, true})
      for (const LaneCase& c : lane_cases(rows)) {
        const std::vector<float> want = many_rows("simt32", c, inputs, outputs, normed);
        for (const std::string& device : rig_devices()) {
          if (device == "simt32_order") continue;
          std::string kernel;
          const std::vector<float> got = many_rows(device + "_matrix", c, inputs, outputs, normed, &kernel);
          EXPECT_TRUE(kernel.starts_with("product_matrix_")) << kernel;
          ASSERT_EQ(got.size(), want.size());
          double square = 0;
          for (const float v : want) square += std::isfinite(v) ? double{v} * v : 0;
          const double unit = std::sqrt(square / static_cast<double>(want.size()));
          for (size_t i = 0; i < got.size(); ++i) {
            if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
            ASSERT_LE(std::abs(got[i] - want[i]), 1e-5 * (unit + std::abs(want[i])))
                << c.name << ", " << rows << " rows, element " << i;
          }
        }
      }
}

/// Panels of several blocks: the choice of how many a block takes changes no bit, nor does the company.
TEST(MatrixUnits, ARowHasTheSameBitsInAnyCompany) {
  constexpr int kInputs = 72;
  for (const int outputs : {40, 1600, 3200}) {  // 1, 2 and 4 panels a block
    std::vector<float> whole;
    for (const int rows : {40, 20, 10}) {
      Rig rig("simt32_matrix", 1, 9, "bf16");
      const Tensor w = rig.load(WeightRole::matrix, {outputs, kInputs});
      const std::vector<float> x = rig.normal(40 * kInputs);
      std::vector<float> got;
      for (int first = 0; first < 40; first += rows) {
        const Buffer in =
            rig.buffer(rows, kInputs, {x.begin() + first * kInputs, x.begin() + (first + rows) * kInputs});
        const Buffer out = rig.buffer(rows, outputs, std::vector<float>(static_cast<size_t>(rows * outputs)));
        rig.run([&](Ops& ops) {
          ops.linear({.x = in, .weight = w.weight, .out = out, .lanes = rig.lanes(plain_case(rows))});
        });
        const std::vector<float> part = rig.read(out);
        got.insert(got.end(), part.begin(), part.end());
      }
      if (whole.empty()) whole = got;
      expect_same_bits(got, whole, std::to_string(outputs) + " outputs, " + std::to_string(rows) + " rows");
    }
  }
}

}  // namespace
}  // namespace skald::backend::test
