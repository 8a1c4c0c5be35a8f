// The CPU device: memory, weights, recorded programs. Private to the backend.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/weights.h"
#include "base/pool.h"

namespace skald::backend::cpu {

/// A call bound to its memory: everything it needs was checked and sized when it was recorded.
class BoundOp {
 public:
  virtual ~BoundOp() = default;
  virtual void run() = 0;
};

struct RecordedProgram {
  std::string name;
  std::vector<std::unique_ptr<BoundOp>> calls;
  std::vector<OpRecord> records;
};

class CpuDevice final : public Backend, public CallTarget {
 public:
  CpuDevice(const Kernels& kernels, int threads, WeightPrecision precision, Compute compute);

  std::string_view name() const override { return name_; }
  Weight load(WeightRole role, const TensorSource& source) override;
  Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) override;
  void write(const Buffer& to, std::span<const std::byte> bytes) override;
  void read(const Buffer& from, std::span<std::byte> bytes) override;
  void zero(const Buffer& view) override;
  Program record(std::string_view name, const std::function<void(Ops&)>& body) override;
  void run(Program program) override;
  std::span<const OpRecord> ops(Program program) const override;
  void run_op(Program program, size_t index) override;
  uint64_t progress() const override { return calls_run_.load(std::memory_order_relaxed); }
  size_t weight_bytes() const override { return weight_bytes_; }
  size_t buffer_bytes() const override { return buffer_bytes_; }
  DeviceSpeed measure_speed() override;
  double measure_read_speed() override;

  const Kernels& kernels() const { return kernels_; }
  Pool& pool() { return pool_; }

  /// Start of the view's memory, after checking that the view lies inside its allocation. Throws
  /// Error(internal).
  std::byte* locate(const Buffer& view, const std::string& what) const override;
  const WeightShape& weight_shape(Weight weight, const std::string& what) const override {
    return this->weight(weight, what);
  }
  const LoadedWeight& weight(Weight weight, const std::string& what) const;

  /// Scratch shared by all ops (only one runs at a time); grows while recording, never while running.
  void reserve_scratch(size_t bytes);
  std::byte* scratch() const { return scratch_.data(); }

 private:
  struct Allocation {
    std::string label;
    Mapping memory;
  };
  const RecordedProgram& program(Program program) const;

  const Kernels& kernels_;
  const WeightPrecision precision_;
  const Compute compute_;
  Pool pool_;
  std::string name_;
  Arena arena_;  // of packed weights
  std::vector<std::unique_ptr<LoadedWeight>> weights_;
  std::vector<Allocation> allocations_;
  std::vector<RecordedProgram> programs_;
  Mapping scratch_;
  size_t weight_bytes_ = 0, buffer_bytes_ = 0;
  std::atomic<uint64_t> calls_run_ = 0;
};

}  // namespace skald::backend::cpu
