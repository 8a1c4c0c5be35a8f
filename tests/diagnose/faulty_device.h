// A device that does one op wrong, in a way that a test names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "diagnose/call_outputs.h"
#include "diagnose/each_op.h"
#include "diagnose/forwarding_device.h"

namespace skald::diagnose::test {

/// Which op, and what happens to its result behind it.
struct Fault {
  std::string kind, label;  ///< of the op, every time it runs; an empty label is any
  size_t output = 0;        ///< index into outputs_of() of the call
  /// Gets the memory and the rows that the op wrote.
  std::function<void(backend::Backend&, const backend::Buffer& view, const RowSpan& rows)> spoil;
};

/// Programs run op by op so that the fault shows in whole runs too.
class FaultyDevice final : public ForwardingDevice {
 public:
  FaultyDevice(std::unique_ptr<backend::Backend> inner, Fault fault)
      : ForwardingDevice(std::move(inner)), fault_(std::move(fault)) {}

  std::string_view name() const override { return "faulty"; }
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override {
    std::vector<RecordedCall> calls;
    const backend::Program program = inner().record(name, [&](backend::Ops& ops) {
      Recorder recorder(ops, calls);
      body(recorder);
    });
    programs_.resize(static_cast<size_t>(program.id) + 1);
    programs_.back() = std::move(calls);
    return program;
  }
  void run(backend::Program program) override {
    for (size_t i = 0; i < ops(program).size(); ++i) run_op(program, i);
  }
  void run_op(backend::Program program, size_t index) override {
    const RecordedCall& call = programs_.at(static_cast<size_t>(program.id)).at(index);
    const bool wrong = call.kind == fault_.kind && (fault_.label.empty() || call.label == fault_.label) &&
                       fault_.output < call.outputs.size();
    const std::vector<RunningLane> lanes = wrong ? running(call.lanes) : std::vector<RunningLane>{};
    inner().run_op(program, index);
    if (!wrong) return;
    const CallOutput& output = call.outputs.at(fault_.output);
    for (const RowSpan& span : written_rows(output, call.lanes, lanes))
      fault_.spoil(inner(), output.view, span);
  }

 private:
  class Recorder final : public EachOp<Recorder> {
   public:
    Recorder(backend::Ops& inner, std::vector<RecordedCall>& to) : inner_(inner), to_(to) {}
    template <class Call>
    void each(std::string_view kind, void (backend::Ops::*member)(const Call&), const Call& call) {
      (inner_.*member)(call);
      to_.push_back({std::string(kind), label_, call.lanes, outputs_of(call)});
    }
    void label(std::string_view where) override { inner_.label(where), label_ = where; }

   private:
    backend::Ops& inner_;
    std::vector<RecordedCall>& to_;
    std::string label_;
  };

  int32_t word(const backend::Buffer& array, int32_t i) {
    int32_t value = 0;
    const backend::Buffer one =
        array.width == 1 ? array.row_range(i, 1) : array.row_range(0, 1).columns(i, 1);
    inner().read(one, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::vector<RunningLane> running(const backend::Lanes& lanes) {
    std::vector<RunningLane> all;
    for (int32_t lane = 0; lane < lanes.lanes; ++lane) {
      const int32_t slot = word(lanes.slot, lane);
      if (slot < 0 || (lanes.gate && word(lanes.gate, slot) != backend::kRunning)) continue;
      const int32_t rows = lanes.count ? word(lanes.count, lane) * lanes.rate : lanes.rows;
      const int64_t start = lanes.start ? word(lanes.start, slot) : 0;
      if (rows > 0) all.push_back({lane, slot, rows, start + lanes.start_offset});
    }
    return all;
  }

  Fault fault_;
  std::vector<std::vector<RecordedCall>> programs_;
};

/// The values of some rows, changed by `change(row, values)` with row counted from the first.
template <class Change>
void change_rows(backend::Backend& device, const backend::Buffer& view, int32_t first, int32_t count,
                 Change&& change) {
  const backend::Buffer rows = view.row_range(first, count);
  std::vector<float> values(static_cast<size_t>(count) * static_cast<size_t>(view.width));
  device.read(rows, std::as_writable_bytes(std::span(values)));
  for (int32_t r = 0; r < count; ++r)
    change(r, std::span(values).subspan(static_cast<size_t>(r) * static_cast<size_t>(view.width),
                                        static_cast<size_t>(view.width)));
  device.write(rows, std::as_bytes(std::span(values)));
}

}  // namespace skald::diagnose::test
