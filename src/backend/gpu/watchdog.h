// Tells a device that stands still from one that is slow, and from a host that was stopped itself.
#pragma once

#include <chrono>
#include <cstdint>

namespace skald::backend::gpu {

/// Patience of one wait. It is asked again and again; each time it learns a number that changes whenever the
/// device gets on, and answers how long that number has stood still.
///
/// What counts is time in which this process ran: it was asked to look and did. A process that was stopped,
/// suspended or held in a debugger finds one long step when it goes on; it counts as kLongestStep at most, so
/// that a healthy device is not blamed for it and a real standstill is still found.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLongestStep{100};

  explicit Watch(std::chrono::milliseconds deadline, Clock::time_point now = Clock::now())
      : deadline_(deadline), last_(now) {}

  /// False when the deadline has passed without progress.
  bool look(uint64_t progress, Clock::time_point now = Clock::now()) {
    const auto step = now - last_;
    last_ = now;
    if (progress != progress_) {
      progress_ = progress;
      still_ = {};
    } else {
      still_ += step < kLongestStep ? step : Clock::duration(kLongestStep);
    }
    return still_ < deadline_;
  }
  /// Time without progress.
  std::chrono::milliseconds still() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(still_);
  }

 private:
  Clock::duration deadline_;
  Clock::duration still_{};
  Clock::time_point last_;
  uint64_t progress_ = 0;
};

/// The pause between two looks: none at first, since most waits are short, then longer ones.
class Backoff {
 public:
  void pause();

 private:
  int looks_ = 0;
};

}  // namespace skald::backend::gpu
