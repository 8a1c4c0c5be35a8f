// Binds the arguments of a recorded call to memory.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/device.h"

namespace skald::backend::cpu {

/// Scratch of one op: offsets are taken while recording, addresses made while running.
template <class T>
struct Scratch {
  const CpuDevice* device = nullptr;
  size_t offset = 0;
  T* get() const { return reinterpret_cast<T*>(device->scratch() + offset); }
};

/// Used by the constructors of bound ops. Where backend/checks.h has a check() for the call it has passed;
/// the methods that take a shape are for calls that it has none for.
class Binder : public Checker {
 public:
  Binder(CpuDevice& device, std::string where) : Checker(device, std::move(where)), device_(device) {}

  CpuDevice& device() const { return device_; }
  const Kernels& kernels() const { return device_.kernels(); }

  const LoadedWeight& weight(Weight weight) const { return device_.weight(weight, where()); }
  const PackedMatrix& matrix(Weight weight) const { return device_.weight(weight, where()).packed; }
  /// Null when absent.
  const float* vector(Weight weight) const {
    return weight ? device_.weight(weight, where()).values.data() : nullptr;
  }

  const LoadedWeight& weight(Weight handle, WeightRole role, const char* what) const {
    shape(handle, role, what);
    return weight(handle);
  }
  const PackedMatrix& matrix(Weight handle, int outputs, int inputs, const char* what) const {
    require_matrix(handle, outputs, inputs, what);
    return matrix(handle);
  }
  const float* vector(Weight handle, int64_t n, const char* what) const {
    require_vector(handle, n, what);
    return vector(handle);
  }

  template <class T>
  Scratch<T> scratch(int64_t count) {
    used_ = (used_ + 63) / 64 * 64;
    const size_t at = used_;
    used_ += checked_bytes(where(), count, 1, sizeof(T));
    device_.reserve_scratch(used_);
    return {&device_, at};
  }

 private:
  CpuDevice& device_;
  size_t used_ = 0;
};

/// One lane that takes part in this run.
struct ActiveLane {
  int32_t lane = 0, slot = 0;
  int32_t row = 0;   ///< its first row in the program's buffers
  int32_t rows = 0;  ///< valid rows, at least 1
  int64_t position = 0;
};

/// The lanes of an op, read from the device arrays at the start of every run.
class LaneSet {
 public:
  LaneSet(const Binder& binder, const Lanes& lanes);
  /// Active lanes in order. Throws Error(internal) when the arrays hold a slot or count that is out of range.
  std::span<const ActiveLane> active();
  int lanes() const { return shape_.lanes; }
  int rows() const { return shape_.rows; }
  int total() const { return shape_.lanes * shape_.rows; }

 private:
  struct {
    int32_t lanes, rows, rate, start_offset;
  } shape_;
  Elements slot_, count_, start_, gate_;
  std::vector<ActiveLane> active_;
};

}  // namespace skald::backend::cpu
