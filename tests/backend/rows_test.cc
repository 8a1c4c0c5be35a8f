// gather_sum, store_rows, copy, advance, publish_frame; memory, programs and weights of the device.
#include <bit>
#include <cmath>
#include <cstring>

#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

TEST(GatherSum, TablesIdsAddAndTrailingRows) {
  Rig rig;
  constexpr int kWidth = 21, kTables = 3, kEntries = 11, kCapacity = 4;
  std::vector<Tensor> tables;
  for (int t = 0; t < kTables; ++t) tables.push_back(rig.load(WeightRole::table, {kEntries, kWidth}));
  for (const bool by_slot : {false, true})
    for (const bool with_add : {false, true})
      for (const bool with_stored : {false, true})
        for (const LaneCase& c : lane_cases(3)) {
          std::vector<int32_t> ids;
          std::uniform_int_distribution<int32_t> id(-2, kEntries - 1);
          const int id_rows = by_slot ? c.slots : c.total();
          for (int i = 0; i < id_rows * kTables; ++i) ids.push_back(id(rig.random()));
          std::vector<float> add;
          const Guarded gadd = rig.guarded_input(c, kWidth, &add), out = rig.guarded(c.total(), kWidth);
          const std::vector<float> stored = rig.normal(int64_t{c.slots} * kCapacity * kWidth),
                                   pad = rig.normal(kWidth);
          // Slot s has s rows stored and is at step 1: slots 0 and 1 are past their end, the others are not.
          std::vector<int32_t> count, step(static_cast<size_t>(c.slots), 1);
          for (int s = 0; s < c.slots; ++s) count.push_back(s);
          GatherSum call{.ids = rig.ints(id_rows, kTables, ids),
                         .ids_by_slot = by_slot,
                         .add = with_add ? gadd.view : Buffer{},
                         .out = out.view,
                         .lanes = rig.lanes(c)};
          for (const Tensor& t : tables) call.tables.push_back(t.weight);
          if (with_stored) {
            call.stored = rig.buffer(c.slots * kCapacity, kWidth, stored),
            call.pad = rig.buffer(1, kWidth, pad);
            call.stored_count = rig.ints(c.slots, 1, count), call.stored_step = rig.ints(c.slots, 1, step);
          }
          rig.run([&](Ops& ops) { ops.gather_sum(call); });
          rig.expect_rows(out, c, 1, 3e-7, [&](int row, int column) {
            Expected y;
            const int slot = c.slot_of(row);
            if (with_add) y += add[static_cast<size_t>(row * kWidth + column)];
            for (int t = 0; t < kTables; ++t) {
              const int32_t i = ids[static_cast<size_t>((by_slot ? slot : row) * kTables + t)];
              if (i >= 0) y += tables[static_cast<size_t>(t)].at(i, column);
            }
            if (with_stored)
              y += slot > 1 ? stored[static_cast<size_t>((slot * kCapacity + 1) * kWidth + column)]
                            : pad[static_cast<size_t>(column)];
            return y;
          });
        }
}

TEST(GatherSum, HalfPrecisionTablesAreExact) {
  Rig rig;
  const std::vector<uint16_t> bf16 = {0x3F80, 0xBF00, 0x4049, 0x0000}, f16 = {0x3C00, 0xB800, 0x4248, 0x0001};
  const auto table = [&](Dtype type, const std::vector<uint16_t>& data) {
    return rig.device().load(
        WeightRole::table,
        {.name = "t", .dtype = type, .shape = {2, 2}, .data = std::as_bytes(std::span(data))});
  };
  const Buffer out = rig.buffer(1, 2, {0, 0}), ids = rig.ints(1, 2, {1, 1});
  const std::vector<Weight> tables = {table(Dtype::bf16, bf16), table(Dtype::f16, f16)};
  rig.run([&](Ops& ops) {
    ops.gather_sum({.tables = tables, .ids = ids, .out = out, .lanes = rig.lanes(plain_case(1))});
  });
  EXPECT_EQ(rig.read(out), (std::vector<float>{3.140625f + 3.140625f, 0x1p-24f}));
}

TEST(GatherSum, IdsOutsideTheTableAreErrors) {
  Rig rig;
  const Tensor t = rig.load(WeightRole::table, {4, 2});
  const Buffer out = rig.buffer(1, 2, {0, 0});
  EXPECT_THROW(rig.run([&](Ops& ops) {
    ops.gather_sum(
        {.tables = {t.weight}, .ids = rig.ints(1, 1, {4}), .out = out, .lanes = rig.lanes(plain_case(1))});
  }),
               Error);
}

TEST(StoreRows, ValidRowsGoToTheirPositions) {
  Rig rig;
  constexpr int kWidth = 5, kCapacity = 30;
  for (const LaneCase& c : lane_cases(4, 1, 20)) {
    std::vector<float> x;
    const Guarded in = rig.guarded_input(c, kWidth, &x), store = rig.guarded(c.slots * kCapacity, kWidth);
    rig.run([&](Ops& ops) {
      ops.store_rows({.x = in.view, .store = store.view, .capacity = kCapacity, .lanes = rig.lanes(c)});
    });
    LaneCase stored{c.name, c.slots * kCapacity,
                    1,      1,
                    1,      std::vector<int32_t>(static_cast<size_t>(c.slots * kCapacity), -1),
                    {},     {},
                    {}};
    std::vector<int> from(stored.slot.size());
    for (int r = 0; r < c.total(); ++r)
      if (c.is_valid(r)) {
        const auto at = static_cast<size_t>(c.slot_of(r) * kCapacity + c.position_of(r));
        stored.slot[at] = 0, from[at] = r;
      }
    rig.expect_rows(store, stored, 1, 0, [&](int row, int column) {
      const double v = x[static_cast<size_t>(from[static_cast<size_t>(row)] * kWidth + column)];
      return Expected{v, std::abs(v)};
    });
  }
}

TEST(Copy, OnlyValidRows) {
  Rig rig;
  for (const LaneCase& c : lane_cases(4)) {
    std::vector<float> x;
    const Guarded in = rig.guarded_input(c, 3, &x), out = rig.guarded(c.total(), 3);
    rig.run([&](Ops& ops) { ops.copy({.x = in.view, .out = out.view, .lanes = rig.lanes(c)}); });
    rig.expect_rows(out, c, 1, 0, [&](int row, int column) {
      const double v = x[static_cast<size_t>(row * 3 + column)];
      return Expected{v, std::abs(v)};
    });
  }
}

TEST(Advance, CountsValidRowsOfRunningSlots) {
  Rig rig;
  for (const LaneCase& c : lane_cases(6, 2)) {
    std::vector<int32_t> want;
    for (int s = 0; s < c.slots; ++s) want.push_back(100 * s);
    const Buffer counter = rig.ints(c.slots, 1, want);
    for (int lane = 0; lane < c.lanes; ++lane)
      if (c.valid(lane) > 0) want[static_cast<size_t>(c.slot[static_cast<size_t>(lane)])] += c.valid(lane);
    rig.run([&](Ops& ops) { ops.advance({.counter = counter, .lanes = rig.lanes(c)}); });
    EXPECT_EQ(rig.read_ints(counter), want) << c.name;
  }
}

TEST(PublishFrame, RingCountAndReasonToStop) {
  Rig rig;
  constexpr int kSlots = 4, kGroups = 3, kRing = 2;
  std::vector<uint8_t> settings(kSlots * sizeof(SlotSettings));
  const int32_t max_frames[] = {10, 4, 100, 4};
  for (int s = 0; s < kSlots; ++s) {
    SlotSettings one;
    one.max_frames = max_frames[s];
    std::memcpy(&settings[static_cast<size_t>(s) * sizeof one], &one, sizeof one);
  }
  SlotArrays a{.settings = rig.bytes(kSlots, sizeof(SlotSettings), settings),
               .status = rig.ints(kSlots, 1, {kRunning, kRunning, kRunning, kStopToken}),
               .position = rig.ints(kSlots, 1, {7, 7, 8, 7}),
               .frames = rig.ints(kSlots, 1, {3, 3, 2, 3}),
               .codes = rig.ints(kSlots, kGroups, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
               .ring = rig.ints(kSlots * kRing, kGroups, std::vector<int32_t>(kSlots * kRing * kGroups, -9)),
               .cache_capacity = 8,
               .ring_frames = kRing,
               .groups = kGroups};
  Lanes lanes{.lanes = 4, .rows = 1, .slot = rig.ints(4, 1, {2, 3, 1, 0}), .gate = a.status};
  rig.run([&](Ops& ops) { ops.publish_frame({.slots = a, .lanes = lanes}); });
  EXPECT_EQ(rig.read_ints(a.frames), (std::vector<int32_t>{4, 4, 3, 3}));
  EXPECT_EQ(rig.read_ints(a.status), (std::vector<int32_t>{kRunning, kLength, kCacheFull, kStopToken}));
  const int32_t e = -9;
  EXPECT_EQ(rig.read_ints(a.ring),
            (std::vector<int32_t>{e, e, e, 1, 2, 3, e, e, e, 4, 5, 6, 7, 8, 9, e, e, e, e, e, e, e, e, e}));
}

// ---- device

TEST(Device, ViewsOutsideTheirBufferAreRefused) {
  Rig rig;
  const Buffer b = rig.buffer(2, 3, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(rig.read(b.columns(1, 2)), (std::vector<float>{2, 3, 5, 6}));
  rig.device().zero(b.columns(0, 1));
  EXPECT_EQ(rig.read(b), (std::vector<float>{0, 2, 3, 0, 5, 6}));
  EXPECT_THROW(rig.read(b.row_range(1, 2)), Error);
  EXPECT_THROW(rig.read(b.columns(2, 2)), Error);
  EXPECT_THROW(rig.write(b, {1, 2}), Error);
  EXPECT_THROW(rig.read({}), Error);
}

TEST(Device, DamagedTensorsAreNamed) {
  Rig rig;
  const std::vector<float> data(12);
  const auto load = [&](WeightRole role, std::vector<int64_t> shape, Dtype type = Dtype::f32,
                        size_t bytes = 48) -> std::string {
    try {
      rig.device().load(role, {.name = "talker.w",
                               .dtype = type,
                               .shape = std::move(shape),
                               .data = std::as_bytes(std::span(data)).first(bytes)});
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model_invalid);
      EXPECT_NE(std::string(e.what()).find("talker.w"), std::string::npos);
      return e.what();
    }
  };
  EXPECT_EQ(load(WeightRole::matrix, {3, 4}), "");
  EXPECT_EQ(load(WeightRole::matrix, {3, 4, 1}), "");  // a convolution of width 1
  EXPECT_NE(load(WeightRole::matrix, {12}), "");
  EXPECT_NE(load(WeightRole::matrix, {3, 2, 2}), "");
  EXPECT_NE(load(WeightRole::vector, {3, 4}), "");
  EXPECT_NE(load(WeightRole::matrix, {3, 4}, Dtype::i32), "");
  EXPECT_NE(load(WeightRole::matrix, {3, 4}, Dtype::f32, 44), "");
  EXPECT_NE(load(WeightRole::matrix, {3, 0}, Dtype::f32, 0), "");
  EXPECT_NE(load(WeightRole::matrix, {int64_t{1} << 31, int64_t{1} << 31}), "");
  EXPECT_NE(load(WeightRole::depthwise, {3, 2, 2}), "");
  for (const char* weights : {"bf16", "int8"}) {  // before anything is packed
    Rig rounded("", 1, 1, weights);
    for (const auto& [shape, bytes] :
         {std::pair<std::vector<int64_t>, size_t>{{3, 4}, 44}, {{3, 5}, 48}, {{3, 0}, 0}, {{12}, 48}})
      EXPECT_THROW(rounded.device().load(
                       WeightRole::matrix,
                       {.name = "w", .shape = shape, .data = std::as_bytes(std::span(data)).first(bytes)}),
                   Error);
  }
}

TEST(Program, ReplayEqualsRunAndOpByOp) {
  Rig rig;
  const Tensor w = rig.load(WeightRole::matrix, {6, 6});
  const Buffer x = rig.buffer(1, 6, rig.normal(6)), y = rig.buffer(1, 6, std::vector<float>(6));
  const Buffer z = rig.buffer(1, 6, std::vector<float>(6));
  const Program p = rig.device().record("two", [&](Ops& ops) {
    const Lanes lanes = rig.lanes(plain_case(1));
    ops.label("first");
    ops.linear({.x = x, .weight = w.weight, .out = y, .lanes = lanes});
    ops.label("second");
    ops.copy({.x = y, .out = z, .lanes = lanes});
  });
  EXPECT_EQ(rig.read(z), std::vector<float>(6)) << "recording must not run";
  rig.device().run(p);
  const std::vector<float> once = rig.read(z);
  rig.write(z, std::vector<float>(6));
  const auto ops = rig.device().ops(p);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].kind + " " + ops[0].label + ", " + ops[1].kind + " " + ops[1].label,
            "linear first, copy second");
  ASSERT_EQ(ops[1].outputs.size(), 1u);
  EXPECT_EQ(ops[1].outputs[0].id, z.id);
  for (size_t i = 0; i < ops.size(); ++i) rig.device().run_op(p, i);
  EXPECT_EQ(rig.read(z), once);
  EXPECT_THROW(rig.device().run_op(p, 2), Error);
  EXPECT_THROW(rig.device().run({}), Error);
}

/// What a program gives does not depend on what ran before it, on the same scratch.
TEST(Program, SecondRunAfterOthersGivesTheSameBits) {
  Rig rig;
  constexpr int kWide = 90;
  const Tensor w = rig.load(WeightRole::matrix, {kWide, kWide}),
               big = rig.load(WeightRole::matrix, {300, kWide}),
               conv = rig.load(WeightRole::convolution, {kWide, kWide, 3});
  const Tensor norm = rig.load(WeightRole::vector, {kWide});
  const Buffer x = rig.buffer(40, kWide, rig.normal(40 * kWide)),
               out = rig.buffer(40, kWide, std::vector<float>(40 * kWide));
  const auto linear = [&](int rows, const Tensor& m, const Buffer& to) {
    return rig.device().record("linear", [&](Ops& ops) {
      ops.linear({.x = x.row_range(0, rows),
                  .norm = {Norm::rms, norm.weight, {}, 1e-6f},
                  .weight = m.weight,
                  .activation = Activation::silu,
                  .out = to,
                  .lanes = rig.lanes(plain_case(rows))});
    });
  };
  const Program a = linear(3, w, out.row_range(0, 3));
  rig.device().run(a);
  const std::vector<float> alone = rig.read(out.row_range(0, 3));
  const Buffer wide = rig.buffer(40, 300, std::vector<float>(40 * 300)),
               state = rig.buffer(2, kWide, rig.normal(2 * kWide, 1e30f));
  const Program others[] = {linear(40, big, wide), linear(1, w, out.row_range(5, 1)),
                            rig.device().record("conv", [&](Ops& ops) {
                              ops.conv({.x = x,
                                        .weight = conv.weight,
                                        .kernel = 3,
                                        .state = state,
                                        .out = out,
                                        .lanes = rig.lanes(plain_case(40))});
                            })};
  for (const Program b : others) {
    rig.device().run(b);
    rig.device().run(a);
    expect_same_bits(alone, rig.read(out.row_range(0, 3)), "after another program");
  }
}

}  // namespace
}  // namespace skald::backend::test
