// Recording costs, timing runs.
#include "diagnose/timed_device.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "diagnose/each_op.h"

namespace skald::diagnose {

using backend::Buffer;
using backend::Lanes;
using backend::Program;
using backend::Weight;
using Clock = std::chrono::steady_clock;

namespace {

bool same_view(const Buffer& a, const Buffer& b) { return a.id == b.id && a.offset == b.offset; }

/// Lanes that are read from the same places.
bool same_lanes(const Lanes& a, const Lanes& b) {
  return same_view(a.slot, b.slot) && same_view(a.count, b.count) && same_view(a.start, b.start) &&
         a.start_offset == b.start_offset && a.lanes == b.lanes && a.rows == b.rows && a.rate == b.rate;
}

/// All layers of a stack under one label.
std::string of_any_layer(const std::string& label) {
  constexpr std::string_view kLayers = ".layers.";
  const size_t at = label.find(kLayers);
  return at == std::string::npos ? label : label.substr(0, at + kLayers.size()) + "*";
}

}  // namespace

/// Forwards every call and notes its stage, cost and lanes.
class TimedDevice::Recorder final : public EachOp<Recorder> {
 public:
  Recorder(backend::Ops& inner, std::string_view program, const std::vector<uint64_t>& weights, Recorded& to)
      : inner_(inner), program_(program), to_(to), bytes_([&weights](Weight weight) {
          return weight ? weights.at(static_cast<size_t>(weight.id)) : 0;
        }) {}

  template <class Call>
  void each(std::string_view kind, void (backend::Ops::*member)(const Call&), const Call& call) {
    (inner_.*member)(call);
    note(kind, call);
  }
  void label(std::string_view where) override { inner_.label(where), label_ = where; }

 private:
  template <class Call>
  void note(std::string_view kind, const Call& call) {
    Op op{.stage = stage_of(program_, kind, label_)};
    if constexpr (requires { cost_of(call, bytes_); }) op.cost = cost_of(call, bytes_);
    const auto known = std::find_if(to_.lanes.begin(), to_.lanes.end(),
                                    [&](const Lanes& lanes) { return same_lanes(lanes, call.lanes); });
    op.lanes = static_cast<size_t>(known - to_.lanes.begin());
    if (known == to_.lanes.end()) to_.lanes.push_back(call.lanes);
    to_.ops.push_back(op);
  }

  backend::Ops& inner_;
  const std::string_view program_;
  Recorded& to_;
  const WeightBytes bytes_;
  std::string label_;
};

TimedDevice::TimedDevice(std::unique_ptr<backend::Backend> inner) : ForwardingDevice(std::move(inner)) {}

Weight TimedDevice::load(backend::WeightRole role, const backend::TensorSource& source) {
  const size_t before = inner().weight_bytes();
  const Weight weight = inner().load(role, source);
  uint64_t bytes = inner().weight_bytes() - before;
  if (role == backend::WeightRole::table && source.shape.size() == 2)
    bytes = static_cast<uint64_t>(source.shape[1]) * dtype_size(source.dtype);
  weights_.resize(std::max(weights_.size(), static_cast<size_t>(weight.id) + 1));
  weights_[static_cast<size_t>(weight.id)] = bytes;
  return weight;
}

Program TimedDevice::record(std::string_view name, const std::function<void(backend::Ops&)>& body) {
  Recorded recorded;
  const Program program = inner().record(name, [&](backend::Ops& ops) {
    Recorder recorder(ops, name, weights_, recorded);
    body(recorder);
  });
  programs_.resize(std::max(programs_.size(), static_cast<size_t>(program.id) + 1));
  recorded.name = name;
  programs_[static_cast<size_t>(program.id)] = std::move(recorded);
  return program;
}

void TimedDevice::run_op(Program program, size_t index) {
  if (!timing_ops_) return inner().run_op(program, index);
  const Recorded& recorded = programs_.at(static_cast<size_t>(program.id));
  const auto ms_of = [](auto&& work) {
    const auto from = Clock::now();
    work();
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
  };
  const double nothing = ms_of([&] { settle(recorded); });
  const double ms = ms_of([&] { inner().run_op(program, index), settle(recorded); });
  const backend::OpRecord& op = inner().ops(program)[index];
  const std::string label = of_any_layer(op.label);
  auto known = std::find_if(op_times_.begin(), op_times_.end(),
                            [&](const OpTime& t) { return t.label == label && t.kind == op.kind; });
  if (known == op_times_.end()) known = op_times_.insert(known, {label, op.kind, 0, 0});
  ++known->ops, known->ms += std::max(0.0, ms - nothing);
}

void TimedDevice::run(Program program) {
  const Recorded& recorded = programs_.at(static_cast<size_t>(program.id));
  if (timing_ops_) {
    for (size_t i = 0; i < recorded.ops.size(); ++i) run_op(program, i);
    return;
  }
  if (!timing_) return inner().run(program);
  // Read before the run, which moves the positions.
  std::vector<std::vector<LaneRun>> lanes;
  lanes.reserve(recorded.lanes.size());
  for (const Lanes& l : recorded.lanes) lanes.push_back(active(l));

  StageTimes times;
  if (inner().frames_ahead() > 0) {
    const backend::ProgramTime whole = inner().run_timed(program);
    for (const Op& op : recorded.ops) ++times[op.stage].ops;
    StageTime& largest = *std::max_element(times.stages.begin(), times.stages.end(),
                                           [](const auto& a, const auto& b) { return a.ops < b.ops; });
    largest.ms = whole.ms, largest.launches = whole.launches;
  } else {
    run_ops(program, recorded, times);
  }
  for (const Op& op : recorded.ops) times[op.stage].work += work_of(op.cost, lanes[op.lanes]);
  runs_.push_back(times);
}

void TimedDevice::run_ops(Program program, const Recorded& recorded, StageTimes& times) {
  auto from = Clock::now();
  for (size_t i = 0; i < recorded.ops.size(); ++i) {
    inner().run_op(program, i);
    const auto now = Clock::now();
    StageTime& stage = times[recorded.ops[i].stage];
    stage.ms += std::chrono::duration<double, std::milli>(now - from).count();
    ++stage.ops;
    from = now;
  }
}

void TimedDevice::time_ops() {
  op_times_.clear();
  timing_ops_ = true;
}

std::vector<OpTime> TimedDevice::take_op_times() {
  timing_ops_ = false;
  std::sort(op_times_.begin(), op_times_.end(), [](const OpTime& a, const OpTime& b) { return a.ms > b.ms; });
  return std::move(op_times_);
}

/// Waits for what was handed over, at the price of a read.
void TimedDevice::settle(const Recorded& recorded) {
  if (inner().frames_ahead() == 0) return;
  int32_t slot = 0;
  inner().read(recorded.lanes.front().slot.row_range(0, 1), std::as_writable_bytes(std::span(&slot, 1)));
}

std::vector<backend::KernelTime> TimedDevice::frame_kernels() {
  std::vector<backend::KernelTime> all;
  for (size_t i = 0; i < programs_.size(); ++i) {
    if (programs_[i].name != "frame.codes x1" && programs_[i].name != "frame.step x1") continue;
    for (const backend::KernelTime& k : inner().time_kernels({static_cast<int32_t>(i)})) {
      const auto known =
          std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.name == k.name; });
      if (known == all.end())
        all.push_back(k);
      else
        known->launches += k.launches, known->ms += k.ms;
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return all;
}

TimedDevice::Pace TimedDevice::pace(const std::vector<backend::TracedRun>& trace) const {
  std::vector<std::pair<double, double>> spans;
  std::vector<double> codes;
  for (const backend::TracedRun& run : trace) {
    spans.emplace_back(run.from_ms, run.to_ms);
    if (programs_.at(static_cast<size_t>(run.program.id)).name == "frame.codes x1")
      codes.push_back(run.to_ms);
  }
  if (spans.empty() || codes.size() < 2) return {};
  std::sort(spans.begin(), spans.end());
  double busy = 0, until = spans.front().first;
  for (const auto& [from, to] : spans) {
    busy += std::max(0.0, to - std::max(from, until));
    until = std::max(until, to);
  }
  return {.idle = 1 - busy / (until - spans.front().first),
          .frame_ms = (codes.back() - codes.front()) / static_cast<double>(codes.size() - 1)};
}

std::vector<StageTimes> TimedDevice::take_runs() { return std::exchange(runs_, {}); }

/// The lanes that have a slot. One whose slot stopped counts too: nothing stops while it is measured.
std::vector<LaneRun> TimedDevice::active(const Lanes& lanes) {
  const auto read = [&](const Buffer& array) {
    std::vector<int32_t> values(static_cast<size_t>(array.rows) * static_cast<size_t>(array.width));
    if (array) inner().read(array, std::as_writable_bytes(std::span(values)));
    return values;
  };
  const std::vector<int32_t> slots = read(lanes.slot), counts = read(lanes.count), starts = read(lanes.start);
  std::vector<LaneRun> runs;
  for (size_t lane = 0; lane < static_cast<size_t>(lanes.lanes); ++lane) {
    if (slots.at(lane) < 0) continue;
    const int64_t units = counts.empty() ? lanes.rows / lanes.rate : counts.at(lane);
    const int64_t start = starts.empty() ? 0 : starts.at(static_cast<size_t>(slots[lane]));
    if (units > 0) runs.push_back({.units = units, .position = start + lanes.start_offset});
  }
  return runs;
}

}  // namespace skald::diagnose
