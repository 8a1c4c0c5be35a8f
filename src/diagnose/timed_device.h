// A device that notes what every op costs and, when asked to, how long it takes.
//
// It stands between a model and its real device, so that neither holds any code for measuring.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/forwarding_device.h"
#include "diagnose/op_cost.h"
#include "diagnose/stages.h"

namespace skald::diagnose {

/// While timing, programs run op by op with a clock reading between: below 0.1 % of a
/// real model's frame on a CPU. On a device that works behind the host they run as a whole, one at a time,
/// and the device tells how long each took; all of it counts as the stage with the most ops.
class TimedDevice final : public ForwardingDevice {
 public:
  explicit TimedDevice(std::unique_ptr<backend::Backend> inner);

  /// Starts or stops timing.
  void time(bool on) { timing_ = on; }
  /// Stage times of every program run since the last call, in order.
  std::vector<StageTimes> take_runs();

  backend::Weight load(backend::WeightRole role, const backend::TensorSource& source) override;
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override;
  void run(backend::Program program) override;
  void run_op(backend::Program program, size_t index) override;
  /// From time_ops() on, programs run op by op, each waited for; take_op_times() ends that and tells the time
  /// by kind and label, the layers of a stack as one, slowest first. A GPU's launches are no graph meanwhile.
  void time_ops();
  std::vector<OpTime> take_op_times();
  /// Kernels of the programs that one frame of one request runs, together.
  std::vector<backend::KernelTime> frame_kernels();
  /// Of a trace: the share of its time in which no program was at work, and what passed from the codes of one
  /// frame to those of the next. `idle` 1 = the device does not tell.
  struct Pace {
    double idle = 1, frame_ms = 0;
  };
  Pace pace(const std::vector<backend::TracedRun>& trace) const;

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
  void settle(const Recorded& recorded);

  std::vector<uint64_t> weights_;  ///< by handle: bytes, of a table those of one entry
  std::vector<Recorded> programs_;
  std::vector<StageTimes> runs_;
  bool timing_ = false, timing_ops_ = false;
  std::vector<OpTime> op_times_;
};

}  // namespace skald::diagnose
