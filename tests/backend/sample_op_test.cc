// The sample op: what it marks, counts and ends; settings, noise and groups; slots and lanes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "rig.h"

namespace skald::backend::test {
namespace {

constexpr int kSlots = 4, kGroups = 3, kVocabulary = 24, kCodes = 16, kStop = 20;

struct Slots {
  SlotArrays arrays;
  std::vector<SlotSettings> settings;
  Slots(Rig& rig, const std::vector<int32_t>& status) : settings(kSlots) {
    for (size_t s = 0; s < kSlots; ++s) {
      settings[s].seed_low = static_cast<uint32_t>(s) + 1;
      settings[s].talker.min_new_tokens = 2;
      settings[s].talker.repetition_penalty = 1.05f;
    }
    std::vector<int32_t> sampled = {5, 1, 2, 2};
    arrays = {.settings = rig.bytes(kSlots, sizeof(SlotSettings),
                                    std::vector<uint8_t>(kSlots * sizeof(SlotSettings))),
              .status = rig.ints(kSlots, 1, status),
              .position = rig.ints(kSlots, 1, std::vector<int32_t>(kSlots)),
              .step = rig.ints(kSlots, 1, std::vector<int32_t>(kSlots)),
              .sampled = rig.ints(kSlots, 1, sampled),
              .frames = rig.ints(kSlots, 1, std::vector<int32_t>(kSlots)),
              .codes = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups, -7)),
              .forced = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups, -1)),
              .seen = rig.bytes(kSlots, kVocabulary, std::vector<uint8_t>(kSlots * kVocabulary)),
              .noise = rig.buffer(kSlots, kVocabulary, std::vector<float>(kSlots * kVocabulary, 1)),
              .predictor_noise = rig.buffer(kSlots, (kGroups - 1) * kCodes,
                                            std::vector<float>(kSlots * (kGroups - 1) * kCodes, 1)),
              .groups = kGroups};
    push(rig);
  }
  void push(Rig& rig) { rig.device().write(arrays.settings, std::as_bytes(std::span(settings))); }
};

TEST(SampleOp, TalkerMarksCountsAndStops) {
  Rig rig;
  Slots slots(rig, {kRunning, kRunning, kRunning, kStopToken});
  // Lanes 0..3 hold slots 2, 1, 0, 3: one draws the stop token as soon as it may, one is too young for it,
  // one is not finite, one idle.
  std::vector<float> logits(4 * kVocabulary);
  const auto row = [&](int lane) { return logits.begin() + lane * kVocabulary; };
  row(0)[kStop] = 50, row(1)[kStop] = 50, row(1)[9] = 40, row(2)[23] = std::nanf(""), row(3)[1] = 50;
  const Lanes lanes{.lanes = 4, .rows = 1, .slot = rig.ints(4, 1, {2, 1, 0, 3}), .gate = slots.arrays.status};
  slots.settings[1].want_probs = 1;
  slots.push(rig);
  const Guarded probs = rig.guarded(4, kVocabulary);
  const Buffer in = rig.buffer(4, kVocabulary, logits), marker = rig.ints(kSlots, 1, {0, 0, 0, 0});
  rig.run([&](Ops& ops) {
    ops.sample({.group = 0,
                .logits = in,
                .probs = probs.view,
                .codes = kCodes,
                .stop_id = kStop,
                .slots = slots.arrays,
                .lanes = lanes});
    ops.advance({.counter = marker, .lanes = lanes});
  });
  EXPECT_EQ(rig.read_ints(slots.arrays.status),
            (std::vector<int32_t>{kNonFinite, kRunning, kStopToken, kStopToken}));
  EXPECT_EQ(rig.read_ints(slots.arrays.sampled), (std::vector<int32_t>{5, 2, 3, 2}));
  EXPECT_EQ(rig.read_ints(slots.arrays.codes.columns(0, 1)), (std::vector<int32_t>{-7, 9, kStop, -7}));
  EXPECT_EQ(rig.read_ints(slots.arrays.codes.columns(1, 2)), std::vector<int32_t>(8, -7));
  const std::vector<uint8_t> seen = rig.read_bytes(slots.arrays.seen);
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 2);
  EXPECT_EQ(seen[1 * kVocabulary + 9] + seen[2 * kVocabulary + kStop], 2);
  EXPECT_EQ(rig.read_ints(marker), (std::vector<int32_t>{0, 1, 0, 0}))
      << "stopped lanes are idle for the ops that follow";
  // Only lane 1 asked for probabilities.
  const LaneCase wants{"probs", 4, 1, 1, 1, {-1, 0, -1, -1}, {}, {}, {}};
  rig.expect_rows(probs, wants, 1, 1e-5, [](int, int column) {
    return Expected{column == 9 ? 1.0 : 0.0, 1};
  });
}

TEST(SampleOp, PredictorUsesItsOwnSettingsNoiseAndGroup) {
  Rig rig;
  Slots slots(rig, std::vector<int32_t>(kSlots, kRunning));
  std::vector<float> logits(2 * kCodes);
  logits[3] = 2, logits[kCodes + 5] = 2;
  std::vector<float> noise(kSlots * (kGroups - 1) * kCodes, 1);
  noise[(0 * (kGroups - 1) + 1) * kCodes + 7] = 1e-3f;  // slot 0, group 2: id 7 wins
  rig.write(slots.arrays.predictor_noise, noise);
  for (SlotSettings& s : slots.settings) s.recorded_noise = 1, s.talker.greedy = 1;
  slots.settings[2].predictor.greedy = 1;
  slots.push(rig);
  const Lanes lanes{.lanes = 2, .rows = 1, .slot = rig.ints(2, 1, {0, 2}), .gate = slots.arrays.status};
  const Buffer in = rig.buffer(2, kCodes, logits);
  for (const int group : {1, 2})
    rig.run([&](Ops& ops) {
      ops.sample({.group = group, .logits = in, .codes = kCodes, .slots = slots.arrays, .lanes = lanes});
    });
  EXPECT_EQ(rig.read_ints(slots.arrays.codes),
            (std::vector<int32_t>{-7, 3, 7, -7, -7, -7, -7, 5, 5, -7, -7, -7}));
  EXPECT_EQ(rig.read_ints(slots.arrays.sampled), (std::vector<int32_t>{5, 1, 2, 2}))
      << "only the talker counts";
}

TEST(SampleOp, DrawsDependOnTheSlotsSeedNotOnTheLane) {
  Rig rig;
  const std::vector<float> logits(kVocabulary);
  const auto codes_with = [&](const std::vector<int32_t>& lane_slots) {
    Slots slots(rig, std::vector<int32_t>(kSlots, kRunning));
    const auto n = static_cast<int32_t>(lane_slots.size());
    const Lanes lanes{.lanes = n, .rows = 1, .slot = rig.ints(n, 1, lane_slots), .gate = slots.arrays.status};
    const Buffer in = rig.buffer(n, kVocabulary, std::vector<float>(static_cast<size_t>(n) * kVocabulary));
    std::vector<int32_t> drawn;
    for (int frame = 0; frame < 20; ++frame) {
      rig.run([&](Ops& ops) {
        ops.sample({.group = 0, .logits = in, .codes = kCodes, .slots = slots.arrays, .lanes = lanes});
      });
      drawn.push_back(rig.read_ints(slots.arrays.codes)[2 * kGroups]);
    }
    return drawn;
  };
  const std::vector<int32_t> alone = codes_with({2});
  EXPECT_EQ(codes_with({3, 0, 2}), alone);
  EXPECT_GT(std::set<int32_t>(alone.begin(), alone.end()).size(), 5u);
}

}  // namespace
}  // namespace skald::backend::test
