// Frames without a model: slot arrays, and a program that counts a position and publishes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/ops.h"

namespace skald::backend {

/// Slot arrays and a program that only publishes: a frame without a model.
class Frames {
 public:
  static constexpr int32_t kSlots = 2, kGroups = 3;

  explicit Frames(Backend& device, int32_t max_frames = 1 << 30) : device_(device) {
    const auto words = [&](const char* label) { return device.allocate(label, Dtype::i32, kSlots, 1); };
    slots_ = {.settings = device.allocate("settings", Dtype::u8, kSlots, sizeof(SlotSettings)),
              .status = words("status"),
              .position = words("position"),
              .step = words("step"),
              .sampled = words("sampled"),
              .frames = words("frames"),
              .codes = device.allocate("codes", Dtype::i32, kSlots, kGroups),
              .ring = device.allocate("ring", Dtype::i32, kSlots * 4, kGroups),
              .cache_capacity = 1 << 30,
              .ring_frames = 4,
              .groups = kGroups};
    lane_slot_ = device.allocate("lane_slot", Dtype::i32, 1, 1);
    SlotSettings settings;
    settings.max_frames = max_frames;
    const int32_t running = kRunning;
    const std::vector<int32_t> drawn{7, 8, 9};
    for (int32_t s = 0; s < kSlots; ++s) {
      device.write(slots_.settings.row_range(s, 1), std::as_bytes(std::span(&settings, 1)));
      device.write(slots_.status.row_range(s, 1), std::as_bytes(std::span(&running, 1)));
      device.write(slots_.codes.row_range(s, 1), std::as_bytes(std::span(drawn)));
    }
    record();
  }

  /// The program, once more.
  void record() {
    const Lanes lanes{.lanes = 1, .rows = 1, .slot = lane_slot_, .gate = slots_.status};
    program_ = device_.record("frame", [&](Ops& ops) {
      ops.advance({.counter = slots_.position, .lanes = lanes});
      ops.publish_frame({.slots = slots_, .lanes = lanes});
    });
  }

  void use(int32_t slot) { device_.write(lane_slot_, std::as_bytes(std::span(&slot, 1))); }
  void submit() { device_.run(program_); }
  FrameReport await(int32_t run, int32_t slot = 0) {
    codes.assign(kGroups, 0);
    return device_.await_report(slots_, slot, run, codes);
  }
  /// `count` frames, a few always ahead.
  void speak(int32_t count, int32_t first_run = 1) {
    int32_t submitted = 0;
    for (int32_t f = 0; f < count; ++f) {
      for (; submitted <= f + device_.frames_ahead() && submitted < count; ++submitted) submit();
      const FrameReport r = await(first_run + f);
      ASSERT_EQ(r.status, kRunning);
      ASSERT_EQ(r.frames, first_run + f);
      ASSERT_EQ(codes, (std::vector<int32_t>{7, 8, 9}));
    }
  }
  std::vector<int32_t> codes;

 private:
  Backend& device_;
  SlotArrays slots_;
  Buffer lane_slot_;
  Program program_;
};

}  // namespace skald::backend
