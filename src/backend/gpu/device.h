// A GPU as a backend: memory, weights, recorded programs, frames that the host does not wait for. Private to
// the backend.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/health.h"
#include "backend/gpu/kernels/link_args.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/memory.h"
#include "backend/gpu/open.h"
#include "backend/gpu/program.h"
#include "backend/gpu/ring.h"
#include "backend/gpu/stream.h"
#include "backend/tensors.h"
#include "base/pool.h"

namespace skald::backend::gpu {

class GpuDevice final : public Backend, public LaunchTarget {
 public:
  /// Throws as make_gpu_backend.
  GpuDevice(OpenDevice open, const GpuOptions& options);
  ~GpuDevice() override;

  std::string_view name() const override { return name_; }
  Weight load(WeightRole role, const TensorSource& source) override;
  Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) override;
  void write(const Buffer& to, std::span<const std::byte> bytes) override;
  void read(const Buffer& from, std::span<std::byte> bytes) override;
  void zero(const Buffer& view) override;
  Program record(std::string_view name, const std::function<void(Ops&)>& body) override;
  void run(Program program) override;
  ProgramTime run_timed(Program program) override;
  std::vector<KernelTime> time_kernels(Program program) override;
  void start_trace() override { trace_.emplace(); }
  std::vector<TracedRun> end_trace() override;
  std::span<const OpRecord> ops(Program program) const override;
  void run_op(Program program, size_t index) override;
  void select(Queue queue) override { selected_ = queue; }
  int32_t frames_ahead() const override { return kFramesAhead; }
  FrameReport await_report(const SlotArrays& slots, int32_t slot, int32_t run,
                           std::span<int32_t> codes) override;
  DeviceCounters counters() const override;
  uint64_t progress() const override { return health_.progress(); }
  std::string status() const override;
  size_t weight_bytes() const override { return weight_bytes_; }
  size_t buffer_bytes() const override { return buffers_.bytes(); }
  DeviceSpeed measure_speed() override;

  // LaunchTarget
  const DeviceTraits& traits() const override { return traits_; }
  uint64_t address(const Buffer& view, const std::string& what) const override {
    return buffers_.address(view, what);
  }
  const DeviceWeight& weight(Weight weight, const std::string& what) const override;
  uint64_t scratch(size_t bytes) override;
  uint64_t zeroed(size_t bytes) override;
  uint64_t fault_word() const override { return words_.address(); }
  HostRingArgs host_ring() const override { return ring_.args(); }

 private:
  static constexpr int32_t kFramesAhead = 4;
  /// Offsets in the shared words: each on a cache line of its own.
  static constexpr size_t kFaultWord = 0, kFirstDone = 64, kDoneStep = 64;

  WorkQueue& queue(Queue q) const { return *queues_[static_cast<size_t>(q)]; }
  /// The selected queue, for new work: what the frames' queue zeroed and uploaded before is there.
  WorkQueue& settled_queue();
  const RecordedProgram& program(Program program) const;
  LinkRowsArgs rows_args(DeviceAddress from, uint64_t from_stride, DeviceAddress to, uint64_t to_stride,
                         uint64_t rows, uint64_t row_bytes) const;
  void move_rows(WorkQueue& queue, const LinkRowsArgs& args);
  void zero_bytes(WorkQueue& queue, DeviceAddress at, uint64_t bytes);
  void upload(DeviceAddress to, std::span<const std::byte> bytes);
  void check_fault();
  /// What the device says passed while `work` handed over its pieces; 0 = it does not tell.
  double timed(WorkQueue& queue, const std::function<void()>& work);
  std::string op_name(uint32_t number) const;

  const OpenDevice open_;
  const DeviceTraits traits_;
  const std::string name_;
  const WeightPrecision precision_;
  const bool fuse_;
  Context context_;
  mutable Health health_;
  Kernels kernels_;
  HostBlock words_;
  std::array<std::unique_ptr<WorkQueue>, 2> queues_;
  struct Traced {
    Program program;
    Event from, to;
  };
  std::optional<std::vector<Traced>> trace_;
  ReportRing ring_;
  Buffers buffers_;
  Pool pool_;
  std::deque<DeviceWeight> weights_;
  std::vector<DeviceBlock> blocks_;  ///< of weights, scratch and zeroed words
  std::vector<std::unique_ptr<RecordedProgram>> programs_;
  struct Scratch {
    uint64_t address = 0;
    size_t size = 0;
  };
  std::array<Scratch, 2> scratch_;
  Queue selected_ = Queue::frames;
  uint32_t next_op_ = 1;
  bool unsettled_ = true;  ///< the frames' queue holds uploads that another queue may need
  size_t weight_bytes_ = 0;
  std::atomic<uint64_t> programs_run_ = 0, reads_ = 0;
};

}  // namespace skald::backend::gpu
