// Costs against hand arithmetic; quantiles.
#include "diagnose/op_cost.h"

#include <gtest/gtest.h>

#include "diagnose/spread.h"
#include "diagnose/stages.h"

namespace skald::diagnose {
namespace {

using backend::Buffer;
using backend::Lanes;
using backend::Weight;

Buffer wide(int32_t width) { return {.id = 0, .width = width}; }
uint64_t thousand_each(Weight weight) { return weight ? 1000 + static_cast<uint64_t>(weight.id) : 0; }

TEST(OpCost, ProductsReadTheirWeightsOnceAndMultiplyPerRow) {
  const backend::Linear linear{
      .x = wide(10), .norm = {backend::Norm::rms, {3}}, .weight = {1}, .bias = {2}, .out = wide(7)};
  const OpCost cost = cost_of(linear, thousand_each);
  const LaneRun lane{.units = 5};
  const Work work = work_of(cost, {&lane, 1});
  EXPECT_EQ(work.weight_bytes, 1001 + 1002 + 1003);
  EXPECT_EQ(work.flops, 5 * 2 * 10 * 7);
  EXPECT_EQ(work.state_bytes, 0);

  const backend::GatedPair pair{.x = wide(10), .gate = {1}, .up = {2}, .out = wide(7)};
  EXPECT_EQ(work_of(cost_of(pair, thousand_each), {&lane, 1}).flops, 5 * 2 * 2 * 10 * 7);
}

TEST(OpCost, APlainNormMultipliesNothing) {
  const backend::Linear norm{.x = wide(10), .norm = {backend::Norm::rms, {3}}, .out = wide(10)};
  EXPECT_EQ(cost_of(norm, thousand_each).unit_flops, 0u);
}

TEST(OpCost, IdleLanesReadNothing) {
  const backend::Linear linear{.x = wide(10), .weight = {1}, .out = wide(7)};
  EXPECT_EQ(work_of(cost_of(linear, thousand_each), {}).bytes(), 0);
}

TEST(OpCost, ConvolutionsCountPerInputRowAndRate) {
  const Lanes lanes{.rows = 8, .rate = 4};
  const backend::Conv conv{.x = wide(3), .weight = {1}, .kernel = 7, .out = wide(5), .lanes = lanes};
  const LaneRun lane{.units = 2};
  EXPECT_EQ(work_of(cost_of(conv, thousand_each), {&lane, 1}).flops, 2 * 4 * 2 * 7 * 3 * 5);
  const backend::ConvTransposed up{
      .x = wide(3), .weight = {1}, .kernel = 4, .stride = 2, .out = wide(5), .lanes = lanes};
  EXPECT_EQ(work_of(cost_of(up, thousand_each), {&lane, 1}).flops, 2 * 4 * 2 * 4 * 3 * 5);
}

TEST(OpCost, AttentionSharesKeysBetweenRows) {
  backend::Attention attention{.heads = 4, .kv_heads = 2, .head_dim = 8};
  attention.cache.k = wide(16);
  const LaneRun lane{.units = 3, .position = 10};  // rows see 11, 12 and 13 keys, 13 in all
  Work work = work_of(cost_of(attention, thousand_each), {&lane, 1});
  EXPECT_EQ(work.state_bytes, 13 * 2 * 16 * 4);
  EXPECT_EQ(work.flops, (11 + 12 + 13) * 4 * 4 * 8);

  attention.window = 5;  // each row sees 5 keys; positions 6 to 12
  work = work_of(cost_of(attention, thousand_each), {&lane, 1});
  EXPECT_EQ(work.state_bytes, 7 * 2 * 16 * 4);
  EXPECT_EQ(work.flops, 15 * 4 * 4 * 8);
}

TEST(OpCost, KeysAndEntriesAreState) {
  backend::QkvRope qkv{
      .x = wide(10), .wq = {1}, .wk = {2}, .wv = {3}, .heads = 4, .kv_heads = 2, .head_dim = 8};
  qkv.cache.k = wide(16);
  const LaneRun lanes[] = {{.units = 1}, {.units = 2}};
  Work work = work_of(cost_of(qkv, thousand_each), lanes);
  EXPECT_EQ(work.state_bytes, 3 * 2 * 16 * 4);
  EXPECT_EQ(work.flops, 3 * 2 * 10 * (4 + 2 + 2) * 8);
  EXPECT_EQ(work.weight_bytes, 1001 + 1002 + 1003);

  const backend::GatherSum sum{.tables = {{1}, {2}}, .stored = wide(20), .out = wide(20)};
  work = work_of(cost_of(sum, thousand_each), lanes);
  EXPECT_EQ(work.state_bytes, 3 * (1001 + 1002 + 80));
}

TEST(Stages, FollowProgramsKindsAndLabels) {
  EXPECT_EQ(stage_of("frame.codes x1", "sample", "predictor.head.3"), Stage::sampling);
  EXPECT_EQ(stage_of("frame.codes x1", "copy", "talker.sample"), Stage::sampling);
  EXPECT_EQ(stage_of("frame.codes x8", "publish_frame", "frame.publish"), Stage::sampling);
  EXPECT_EQ(stage_of("frame.codes x1", "linear", "predictor.head.3"), Stage::predictor);
  EXPECT_EQ(stage_of("frame.codes x1", "attention", "predictor.layers.0"), Stage::predictor);
  EXPECT_EQ(stage_of("frame.step x1", "attention", "talker.layers.0"), Stage::talker_attention);
  EXPECT_EQ(stage_of("frame.step x1", "linear", "talker.head"), Stage::talker);
  EXPECT_EQ(stage_of("codec x4", "conv", "codec.decoder.0"), Stage::codec);
  EXPECT_EQ(stage_of("talker.prefill", "attention", "talker.layers.0"), Stage::prefill);
}

TEST(Spread, QuantilesAreInterpolated) {
  const Spread s = spread_of({4, 1, 3, 2});
  EXPECT_EQ(s.median, 2.5);
  EXPECT_EQ(s.low, 1.75);
  EXPECT_EQ(s.high, 3.25);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 4);
  EXPECT_EQ(s.samples, 4u);
  EXPECT_EQ(spread_of({7}).high, 7);
  EXPECT_EQ(spread_of({}).samples, 0u);
}

}  // namespace
}  // namespace skald::diagnose
