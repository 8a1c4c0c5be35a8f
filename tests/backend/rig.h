// What the backend tests share: a device with its tensors, guarded buffers, lane patterns and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace skald::backend::test {

/// A value of the double-precision reference, and the sum of the absolute values of what was added up:
/// rounding errors are judged against that, so that cancellation does not count as an error.
struct Expected {
  double value = 0, magnitude = 0;
  Expected& operator+=(double term) {
    value += term, magnitude += std::abs(term);
    return *this;
  }
};

/// "" when `got` is within `tolerance * magnitude` of the reference, else what is wrong.
std::string difference(float got, const Expected& want, double tolerance);

/// A host copy of a tensor and its weight on the device.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  Weight weight;
  float at(int64_t i) const { return values[static_cast<size_t>(i)]; }
  float at(int64_t i, int64_t j) const { return at(i * shape[1] + j); }
  float at(int64_t i, int64_t j, int64_t k) const { return at((i * shape[1] + j) * shape[2] + k); }
};

/// A view inside a larger allocation: one row before and after, some columns on both sides, all filled with a
/// NaN of a known bit pattern. Whatever an op leaves alone still holds that pattern. Inputs have another one,
/// so that a NaN which was read and handed on is not taken for an untouched element.
constexpr uint32_t kGuardBits = 0x7FC0BEEFu, kInputGuardBits = 0x7FC0FEEDu;
struct Guarded {
  Buffer whole, view;
  uint32_t bits = kGuardBits;
};

/// Which lanes a run has, and what their slots hold.
struct LaneCase {
  std::string name;
  int lanes = 1, rows = 1, rate = 1, slots = 1;
  std::vector<int32_t> slot, count;    // by lane; empty count = absent
  std::vector<int32_t> start, status;  // by slot; empty = absent

  int valid(int lane) const;  ///< rows that count
  bool is_valid(int row) const { return row % rows < valid(row / rows); }
  int slot_of(int row) const { return slot[static_cast<size_t>(row / rows)]; }
  int position_of(int row) const;
  int total() const { return lanes * rows; }
};

/// One to three lanes, idle by slot and by status, partial and zero counts, slots in permuted order.
std::vector<LaneCase> lane_cases(int rows, int rate = 1, int max_start = 0);
/// One lane, slot 0, all rows.
LaneCase plain_case(int rows, int start = 0);

/// The devices of a test program, defined once in each: rig_cpu.cc or gpu/rig_gpu.cc. An empty name is the
/// first of them; `threads` is for CPUs.
std::vector<std::string> rig_devices();
/// Numbers of threads that could show in a result.
std::vector<int> rig_threads();
/// Kernels that run lane by lane: long cases take fewer rows.
bool rig_is_slow();
std::unique_ptr<Backend> make_rig_device(const std::string& name, int threads, const std::string& weights);

class Rig {
 public:
  explicit Rig(const std::string& target = "", int threads = 2, uint32_t seed = 1,
               const std::string& weights = "auto");

  Backend& device() { return *device_; }
  std::mt19937& random() { return random_; }
  std::vector<float> normal(int64_t count, float scale = 1);

  /// The host copy of a matrix holds what the device makes of it under `weights`.
  Tensor load(WeightRole role, std::vector<int64_t> shape, float scale = 1);
  Tensor load(WeightRole role, std::vector<int64_t> shape, std::vector<float> values);

  /// A plain buffer with contents.
  Buffer buffer(int64_t rows, int32_t width, const std::vector<float>& values);
  Buffer ints(int64_t rows, int32_t width, const std::vector<int32_t>& values);
  Buffer bytes(int64_t rows, int32_t width, const std::vector<uint8_t>& values);
  Guarded guarded(int32_t rows, int32_t width, uint32_t bits = kGuardBits);
  /// A guarded buffer whose valid rows hold normal values; the rest stays NaN, so that reading it shows.
  Guarded guarded_input(const LaneCase& lanes, int32_t width, std::vector<float>* host, float scale = 1);
  Lanes lanes(const LaneCase& lanes);

  std::vector<float> read(const Buffer& view);
  std::vector<int32_t> read_ints(const Buffer& view);
  std::vector<uint8_t> read_bytes(const Buffer& view);
  void write(const Buffer& view, const std::vector<float>& values);
  void write_ints(const Buffer& view, const std::vector<int32_t>& values);

  /// Records and runs one body.
  void run(const std::function<void(Ops&)>& body);

  /// Valid rows (of `factor` output rows per row) are close to the reference, everything else untouched.
  void expect_rows(const Guarded& out, const LaneCase& lanes, int factor, double tolerance,
                   const std::function<Expected(int row, int column)>& want);

 private:
  std::string weights_;
  std::unique_ptr<Backend> device_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<std::vector<float>>> kept_;  // table sources outlive the device's use of them
};

/// Suites that run once for every device: the SIMD targets of this machine, or what stands for GPUs.
class PerTarget : public testing::TestWithParam<std::string> {};

/// A matrix as "bf16" or "int8" hold it (docs/decisions/0006), "f32" and "auto" as it is.
std::vector<float> as_held(const std::string& weights, const std::vector<int64_t>& shape,
                           std::vector<float> values);

/// Every element has the same bits.
void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what);

}  // namespace skald::backend::test
