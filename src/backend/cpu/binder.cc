// Argument checks of recorded calls, and the lanes of a run.
#include "backend/cpu/binder.h"

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::backend::cpu {

void Binder::fail(const std::string& what) const {
  throw Error(ErrorCode::internal, fmt::format("{}: {}", where_, what));
}

std::byte* Binder::bind(const Buffer& buffer, size_t element, int64_t rows, int64_t width,
                        const char* what) const {
  if (!buffer) fail(fmt::format("'{}' is missing", what));
  if (dtype_size(buffer.dtype) != element || buffer.rows < rows || buffer.width != width)
    fail(fmt::format("'{}' has {} rows x {} columns of {} bytes, needs {} x {} of {}", what, buffer.rows,
                     buffer.width, dtype_size(buffer.dtype), rows, width, element));
  if (buffer.rows > 1 && buffer.stride < buffer.width) fail(fmt::format("'{}' has overlapping rows", what));
  return device_.locate(buffer, fmt::format("{}: '{}'", where_, what));
}

Elements Binder::elements(const Buffer& buffer, int64_t count, const char* what) const {
  if (!buffer) fail(fmt::format("'{}' is missing", what));
  const bool column = buffer.width == 1;
  const int32_t have = column ? buffer.rows : buffer.rows == 1 ? buffer.width : 0;
  if (buffer.dtype != Dtype::i32 || have < count)
    fail(fmt::format("'{}' should be {} i32 in one row or column", what, count));
  auto* data = reinterpret_cast<int32_t*>(device_.locate(buffer, fmt::format("{}: '{}'", where_, what)));
  return {data, column ? buffer.stride : 1, have};
}

const LoadedWeight& Binder::weight(Weight handle, WeightRole role, const char* what) const {
  if (!handle) fail(fmt::format("weight '{}' is missing", what));
  const LoadedWeight& w = device_.weight(handle, where_);
  if (w.role != role) fail(fmt::format("weight '{}' ('{}') was loaded under another role", what, w.name));
  return w;
}

const PackedMatrix& Binder::matrix(Weight handle, int outputs, int inputs, const char* what) const {
  const LoadedWeight& w = weight(handle, WeightRole::matrix, what);
  if (w.packed.outputs != outputs || w.packed.inputs != inputs)
    fail(fmt::format("weight '{}' ('{}') is {} x {}, needs {} x {}", what, w.name, w.packed.outputs,
                     w.packed.inputs, outputs, inputs));
  return w.packed;
}

const float* Binder::vector(Weight handle, int64_t n, const char* what) const {
  if (!handle) return nullptr;
  const LoadedWeight& w = weight(handle, WeightRole::vector, what);
  if (w.width != n)
    fail(fmt::format("weight '{}' ('{}') has {} elements, needs {}", what, w.name, w.width, n));
  return w.values.data();
}

void Binder::require_disjoint(const Buffer& a, const Buffer& b, const char* what) const {
  if (a.id != b.id || !a || !b) return;
  const auto end = [](const Buffer& v) {
    return v.offset + (v.rows == 0 ? 0 : (v.rows - 1) * v.stride + v.width);
  };
  if (a.offset >= end(b) || b.offset >= end(a)) return;
  // Column ranges of the same rows may interleave without touching.
  if (a.stride == b.stride && a.stride > 0) {
    const int64_t first_a = a.offset % a.stride, first_b = b.offset % b.stride;
    if (first_a + a.width <= first_b || first_b + b.width <= first_a) return;
  }
  fail(what);
}

LaneSet::LaneSet(const Binder& binder, const Lanes& lanes)
    : shape_{lanes.lanes, lanes.rows, lanes.rate, lanes.start_offset} {
  binder.require(lanes.lanes > 0 && lanes.rows > 0 && lanes.rate > 0 && lanes.rows % lanes.rate == 0,
                 "lanes, rows and rate should be positive, and rows a multiple of rate");
  binder.require(int64_t{lanes.lanes} * lanes.rows <= INT32_MAX, "too many rows");
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
