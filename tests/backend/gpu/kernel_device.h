// A device made of the GPU backend's ops alone: it runs their launches one after the other on whatever can
// execute them. No driver, no graphs: what stands between the kernels and their tests is as little as
// possible.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/launch.h"
#include "backend/gpu/recorder.h"
#include "backend/ops.h"
#include "base/pool.h"

namespace skald::backend::gpu::test {

/// Memory that kernels can use, and something that runs them.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string name() const = 0;
  virtual DeviceTraits traits() const = 0;
  /// Zeroed, on a 256-byte border where `aligned`, until the executor dies.
  virtual uint64_t allocate(size_t bytes, bool aligned) = 0;
  virtual void write(uint64_t to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, uint64_t from, size_t bytes) = 0;
  /// Throws std::runtime_error.
  virtual void launch(const Launch& launch) = 0;
};

/// Shared memory of a launch is undefined, scratch too: it is filled with NaN before every op.
class KernelDevice final : public Backend, public LaunchTarget {
 public:
  /// `matrix`: DeviceTraits::matrix.
  KernelDevice(std::unique_ptr<Executor> executor, const std::string& weights, bool matrix = false);

  std::string_view name() const override { return name_; }
  Weight load(WeightRole role, const TensorSource& source) override;
  Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) override;
  void write(const Buffer& to, std::span<const std::byte> bytes) override;
  void read(const Buffer& from, std::span<std::byte> bytes) override;
  void zero(const Buffer& view) override;
  Program record(std::string_view name, const std::function<void(Ops&)>& body) override;
  /// Throws Error(internal) when a kernel reported a fault.
  void run(Program program) override;
  std::span<const OpRecord> ops(Program program) const override;
  void run_op(Program program, size_t index) override;
  size_t weight_bytes() const override { return weight_bytes_; }
  size_t buffer_bytes() const override { return buffer_bytes_; }

  const DeviceTraits& traits() const override { return traits_; }
  uint64_t address(const Buffer& view, const std::string& what) const override;
  const DeviceWeight& weight(Weight weight, const std::string& what) const override;
  uint64_t scratch(size_t bytes) override;
  uint64_t zeroed(size_t bytes) override;
  uint64_t fault_word() const override { return fault_; }
  HostRingArgs host_ring() const override { return ring_; }

  /// For what is recorded from now on.
  void set_compute_units(int units) { traits_.compute_units = units; }
  /// From now on publish_frame reports to a ring of `depth` entries for `slots` slots.
  void listen(int slots, int depth, int groups);
  /// Entry `index` of a slot in that ring.
  std::vector<int> ring_entry(int slot, int index);
  std::span<const RecordedOp> recorded(Program program) const { return find(program).ops; }
  Executor& executor() { return *executor_; }

 private:
  struct Allocation {
    std::string label;
    size_t bytes;
    uint64_t address;
  };
  struct Recorded {
    std::string name;
    std::vector<RecordedOp> ops;
    std::vector<OpRecord> records;
  };
  const Recorded& find(Program program) const;
  void run(const Recorded& program, const RecordedOp& op);

  std::unique_ptr<Executor> executor_;
  DeviceTraits traits_;
  WeightPrecision precision_;
  Pool pool_;
  std::string name_;
  std::vector<Allocation> allocations_;
  std::vector<std::unique_ptr<DeviceWeight>> weights_;
  std::vector<Recorded> programs_;
  uint64_t scratch_ = 0, fault_ = 0;
  size_t scratch_bytes_ = 0, weight_bytes_ = 0, buffer_bytes_ = 0;
  std::vector<std::byte> poison_;
  HostRingArgs ring_{};
  uint32_t next_op_ = 1;
};

/// Kernels compiled for the host: tests/standin/simt. Warps of 32 or 64; `race`: with the race check; `seed`:
/// order of lanes, 0 = in order.
std::unique_ptr<Executor> make_simt_executor(int warp, bool race, unsigned seed);

}  // namespace skald::backend::gpu::test
