// Which rows a call writes, for every way of finding them.
#include "diagnose/call_outputs.h"

#include <gtest/gtest.h>

namespace skald::diagnose {
namespace {

using backend::Buffer;
using backend::Lanes;

Buffer buffer(int32_t id, int32_t rows, int32_t width = 4) {
  return {.id = id, .rows = rows, .width = width, .stride = width};
}

struct Span {
  int32_t first, count;
  int64_t position;
  bool operator==(const Span&) const = default;
};
std::vector<Span> spans(const CallOutput& output, const Lanes& lanes,
                        const std::vector<RunningLane>& running) {
  std::vector<Span> all;
  for (const RowSpan& s : written_rows(output, lanes, running)) all.push_back({s.first, s.count, s.position});
  return all;
}

const Lanes kLanes{.lanes = 3, .rows = 8, .slot = buffer(0, 3)};
const std::vector<RunningLane> kRunning{{.lane = 0, .slot = 2, .rows = 8, .position = 10},
                                        {.lane = 2, .slot = 0, .rows = 3, .position = 29}};

TEST(WrittenRows, OfLanes) {
  const auto outputs = outputs_of(backend::Linear{.out = buffer(1, 24), .lanes = kLanes});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(spans(outputs[0], kLanes, kRunning), (std::vector<Span>{{0, 8, 10}, {16, 3, 29}}));
}

TEST(WrittenRows, OfCachesAndRings) {
  backend::QkvRope call{
      .q = buffer(1, 24), .cache = {.k = buffer(2, 96), .v = buffer(3, 96), .capacity = 32}, .lanes = kLanes};
  auto outputs = outputs_of(call);
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[1].name, "cache.k");
  EXPECT_EQ(spans(outputs[2], kLanes, kRunning), (std::vector<Span>{{74, 8, 10}, {29, 3, 29}}));
  call.cache.capacity = 30, call.cache.ring = true;
  outputs = outputs_of(call);
  EXPECT_EQ(spans(outputs[1], kLanes, kRunning), (std::vector<Span>{{70, 8, 10}, {29, 1, 29}, {0, 2, 30}}));
  // More rows than the ring has: the last ones stay.
  call.cache.capacity = 5;
  EXPECT_EQ(spans(outputs_of(call)[1], kLanes, {{.lane = 0, .slot = 1, .rows = 8, .position = 4}}),
            (std::vector<Span>{{7, 3, 7}, {5, 2, 10}}));
}

TEST(WrittenRows, OfAudio) {
  const auto up = outputs_of(backend::ConvTransposed{
      .kernel = 8, .stride = 4, .state = buffer(2, 3), .out = buffer(1, 96), .lanes = kLanes});
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(spans(up[0], kLanes, kRunning), (std::vector<Span>{{0, 32, -1}, {64, 12, -1}}));
  EXPECT_EQ(spans(up[1], kLanes, kRunning), (std::vector<Span>{{2, 1, -1}, {0, 1, -1}}));
  const auto conv = outputs_of(backend::Conv{
      .kernel = 7, .dilation = 3, .state = buffer(2, 54), .out = buffer(1, 24), .lanes = kLanes});
  EXPECT_EQ(spans(conv[1], kLanes, kRunning), (std::vector<Span>{{36, 18, -1}, {0, 18, -1}}));
  EXPECT_EQ(outputs_of(backend::Conv{.out = buffer(1, 24), .lanes = kLanes}).size(), 1u);
  const auto down = outputs_of(backend::PaddedConv{
      .kernel = 4, .stride = 2, .state = buffer(2, 6), .out = buffer(1, 12), .lanes = kLanes});
  EXPECT_EQ(spans(down[0], kLanes, kRunning), (std::vector<Span>{{0, 4, -1}, {8, 2, -1}}));
  const auto mel = outputs_of(backend::LogMel{.hop = 4, .out = buffer(1, 6), .lanes = kLanes});
  EXPECT_EQ(spans(mel[0], kLanes, kRunning), (std::vector<Span>{{0, 2, -1}, {4, 0, -1}}));
}

TEST(WrittenRows, OfSlotArrays) {
  backend::SlotArrays slots;
  slots.codes = buffer(1, 3), slots.status = buffer(2, 3), slots.sampled = buffer(3, 3);
  slots.seen = buffer(4, 3), slots.ring = buffer(5, 48), slots.frames = buffer(6, 3), slots.ring_frames = 16;
  auto draw = outputs_of(backend::Sample{.group = 0, .slots = slots, .lanes = kLanes});
  ASSERT_EQ(draw.size(), 4u);  // probs are absent
  EXPECT_EQ(spans(draw[0], kLanes, kRunning), (std::vector<Span>{{2, 1, -1}, {0, 1, -1}}));
  EXPECT_EQ(draw[3].name, "seen");
  EXPECT_EQ(outputs_of(backend::Sample{.group = 3, .slots = slots, .lanes = kLanes}).size(), 3u);
  const auto frame = outputs_of(backend::PublishFrame{.slots = slots, .lanes = kLanes});
  EXPECT_EQ(spans(frame[0], kLanes, kRunning), (std::vector<Span>{{32, 16, -1}, {0, 16, -1}}));
}

TEST(WrittenRows, OfOneRowPerLane) {
  const auto copy =
      outputs_of(backend::Copy{.rows = backend::Copy::last, .out = buffer(1, 3), .lanes = kLanes});
  EXPECT_EQ(spans(copy[0], kLanes, kRunning), (std::vector<Span>{{0, 1, 17}, {2, 1, 31}}));
}

}  // namespace
}  // namespace skald::diagnose
