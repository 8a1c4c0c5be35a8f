// A device that notes what every op costs and, when asked to, how long it takes.
//
// It stands between a model and its real device, so that neither holds any code for measuring.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "diagnose/op_cost.h"
#include "diagnose/stages.h"

namespace skald::diagnose {

/// Forwards everything. While timing, programs run op by op with a clock reading between: below 0.1 % of a
/// real model's frame on a CPU. On a device that works behind the host they run as a whole, one at a time,
/// and the device tells how long each took; all of it counts as the stage with the most ops.
class TimedDevice final : public backend::Backend {
 public:
  explicit TimedDevice(std::unique_ptr<backend::Backend> inner);

  /// Starts or stops timing.
  void time(bool on) { timing_ = on; }
  /// Stage times of every program run since the last call, in order.
  std::vector<StageTimes> take_runs();

  std::string_view name() const override { return inner_->name(); }
  backend::Weight load(backend::WeightRole role, const backend::TensorSource& source) override;
  backend::Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows,
                           int32_t width) override {
    return inner_->allocate(label, dtype, rows, width);
  }
  void write(const backend::Buffer& to, std::span<const std::byte> bytes) override {
    inner_->write(to, bytes);
  }
  void read(const backend::Buffer& from, std::span<std::byte> bytes) override { inner_->read(from, bytes); }
  void zero(const backend::Buffer& view) override { inner_->zero(view); }
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override;
  void run(backend::Program program) override;
  backend::ProgramTime run_timed(backend::Program program) override { return inner_->run_timed(program); }
  std::vector<backend::KernelTime> time_kernels(backend::Program program) override {
    return inner_->time_kernels(program);
  }
  /// Kernels of the programs that one frame of one request runs, together.
  std::vector<backend::KernelTime> frame_kernels();
  std::span<const backend::OpRecord> ops(backend::Program program) const override {
    return inner_->ops(program);
  }
  void run_op(backend::Program program, size_t index) override { inner_->run_op(program, index); }
  void select(backend::Queue queue) override { inner_->select(queue); }
  int32_t frames_ahead() const override { return inner_->frames_ahead(); }
  backend::FrameReport await_report(const backend::SlotArrays& slots, int32_t slot, int32_t run,
                                    std::span<int32_t> codes) override {
    return inner_->await_report(slots, slot, run, codes);
  }
  backend::DeviceCounters counters() const override { return inner_->counters(); }
  std::string status() const override { return inner_->status(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  size_t buffer_bytes() const override { return inner_->buffer_bytes(); }
  backend::DeviceSpeed measure_speed() override { return inner_->measure_speed(); }
  double measure_read_speed() override { return inner_->measure_read_speed(); }

 private:
  struct Op {
    Stage stage = Stage::prefill;
    OpCost cost;
    size_t lanes = 0;  ///< index into Recorded::lanes
  };
  struct Recorded {
    std::vector<Op> ops;
    std::vector<backend::Lanes> lanes;  ///< the different ones
    std::string name;
  };
  class Recorder;

  std::vector<LaneRun> active(const backend::Lanes& lanes);
  void run_ops(backend::Program program, const Recorded& recorded, StageTimes& times);

  std::unique_ptr<backend::Backend> inner_;
  std::vector<uint64_t> weights_;  ///< by handle: bytes, of a table those of one entry
  std::vector<Recorded> programs_;
  std::vector<StageTimes> runs_;
  bool timing_ = false;
};

}  // namespace skald::diagnose
