// Checks the arguments of a recorded call and binds them to memory.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/device.h"

namespace skald::backend::cpu {

/// A bound two-dimensional view; a null one means "absent".
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
  explicit operator bool() const { return data != nullptr; }
  T* operator[](int64_t row) const { return data + row * stride; }
};

/// A bound list of numbers, one per lane or slot.
struct Elements {
  int32_t* data = nullptr;
  int64_t stride = 1;
  int32_t count = 0;
  explicit operator bool() const { return data != nullptr; }
  int32_t& operator[](int64_t i) const { return data[i * stride]; }
};

/// Scratch of one op: offsets are taken while recording, addresses made while running.
template <class T>
struct Scratch {
  const CpuDevice* device = nullptr;
  size_t offset = 0;
  T* get() const { return reinterpret_cast<T*>(device->scratch() + offset); }
};

/// Used by the constructors of bound ops. Every check throws Error(internal) that names program, label and
/// argument: the model code is wrong, not the user.
class Binder {
 public:
  Binder(CpuDevice& device, std::string where) : device_(device), where_(std::move(where)) {}
  ~Binder() = default;

  CpuDevice& device() const { return device_; }
  const Kernels& kernels() const { return device_.kernels(); }

  void require(bool holds, const char* what) const {
    if (!holds) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) const;

  /// At least `rows` rows of exactly `width` columns. Floats unless T says otherwise.
  template <class T = float>
  Rows<T> rows(const Buffer& buffer, int64_t rows, int64_t width, const char* what) const {
    return {reinterpret_cast<T*>(bind(buffer, sizeof(T), rows, width, what)), buffer.stride};
  }
  template <class T = float>
  Rows<T> optional_rows(const Buffer& buffer, int64_t count, int64_t width, const char* what) const {
    return buffer ? rows<T>(buffer, count, width, what) : Rows<T>{};
  }
  /// A column or a row of at least `count` i32.
  Elements elements(const Buffer& buffer, int64_t count, const char* what) const;

  const LoadedWeight& weight(Weight weight, WeightRole role, const char* what) const;
  const PackedMatrix& matrix(Weight weight, int outputs, int inputs, const char* what) const;
  /// [n], or null when absent.
  const float* vector(Weight weight, int64_t n, const char* what) const;

  /// The two views share no element (checked on the address range they span).
  void require_disjoint(const Buffer& a, const Buffer& b, const char* what) const;

  template <class T>
  Scratch<T> scratch(int64_t count) {
    used_ = (used_ + 63) / 64 * 64;
    const size_t at = used_;
    used_ += checked_bytes(where_, count, 1, sizeof(T));
    device_.reserve_scratch(used_);
    return {&device_, at};
  }

 private:
  std::byte* bind(const Buffer& buffer, size_t element, int64_t rows, int64_t width, const char* what) const;

  CpuDevice& device_;
  std::string where_;
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
