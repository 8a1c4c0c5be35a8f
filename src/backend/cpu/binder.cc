// The lanes of a run.
#include "backend/cpu/binder.h"

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::backend::cpu {

LaneSet::LaneSet(const Binder& binder, const Lanes& lanes)
    : shape_{lanes.lanes, lanes.rows, lanes.rate, lanes.start_offset} {
  slot_ = binder.elements(lanes.slot, lanes.lanes, "lanes.slot");
  if (lanes.count) count_ = binder.elements(lanes.count, lanes.lanes, "lanes.count");
  if (lanes.start) start_ = binder.elements(lanes.start, 1, "lanes.start");
  if (lanes.gate) gate_ = binder.elements(lanes.gate, 1, "lanes.gate");
  active_.reserve(static_cast<size_t>(lanes.lanes));
}

std::span<const ActiveLane> LaneSet::active() {
  active_.clear();
  for (int32_t lane = 0; lane < shape_.lanes; ++lane) {
    const int32_t slot = slot_[lane];
    if (slot < 0) continue;
    if ((gate_ && slot >= gate_.count) || (start_ && slot >= start_.count))
      throw Error(ErrorCode::internal,
                  fmt::format("lane {} names slot {}, which does not exist", lane, slot));
    if (gate_ && gate_[slot] != kRunning) continue;
    const int64_t rows = count_ ? int64_t{count_[lane]} * shape_.rate : shape_.rows;
    if (rows < 0 || rows > shape_.rows)
      throw Error(ErrorCode::internal, fmt::format("lane {} counts {} rows of {}", lane, rows, shape_.rows));
    if (rows == 0) continue;
    active_.push_back({.lane = lane,
                       .slot = slot,
                       .row = lane * shape_.rows,
                       .rows = static_cast<int32_t>(rows),
                       .position = int64_t{start_ ? start_[slot] : 0} + shape_.start_offset});
  }
  return active_;
}

}  // namespace skald::backend::cpu
