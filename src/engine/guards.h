// Stall guard: tells a talker that goes round in circles from a held sound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

namespace skald::engine {

/// Fires when `window` frames in a row use at most kFewCodes distinct code0 values. Frames count only after
/// the whole text was fed: before that a long pause or a held sound is followed by more speech.
class StallGuard {
 public:
  static constexpr size_t kFewCodes = 3;
  /// A window of 0 switches the guard off.
  explicit StallGuard(int32_t window) : window_(window) {}

  /// Adds a frame; true = stalled.
  bool add(int32_t code0, bool text_consumed);

 private:
  int32_t window_;
  std::deque<int32_t> recent_;
  std::unordered_map<int32_t, int32_t> counts_;  // of the codes in recent_
};

}  // namespace skald::engine
