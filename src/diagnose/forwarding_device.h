// A device that hands everything to another one: what stands between a model and its real device starts here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/ops.h"

namespace skald::diagnose {

class ForwardingDevice : public backend::Backend {
 public:
  explicit ForwardingDevice(std::unique_ptr<backend::Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  backend::Weight load(backend::WeightRole role, const backend::TensorSource& source) override {
    return inner_->load(role, source);
  }
  backend::Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows,
                           int32_t width) override {
    return inner_->allocate(label, dtype, rows, width);
  }
  void write(const backend::Buffer& to, std::span<const std::byte> bytes) override {
    inner_->write(to, bytes);
  }
  void read(const backend::Buffer& from, std::span<std::byte> bytes) override { inner_->read(from, bytes); }
  void zero(const backend::Buffer& view) override { inner_->zero(view); }
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override {
    return inner_->record(name, body);
  }
  void run(backend::Program program) override { inner_->run(program); }
  backend::ProgramTime run_timed(backend::Program program) override { return inner_->run_timed(program); }
  std::vector<backend::KernelTime> time_kernels(backend::Program program) override {
    return inner_->time_kernels(program);
  }
  void start_trace() override { inner_->start_trace(); }
  std::vector<backend::TracedRun> end_trace() override { return inner_->end_trace(); }
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
  uint64_t progress() const override { return inner_->progress(); }
  std::string status() const override { return inner_->status(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  size_t buffer_bytes() const override { return inner_->buffer_bytes(); }
  backend::DeviceSpeed measure_speed() override { return inner_->measure_speed(); }
  double measure_read_speed() override { return inner_->measure_read_speed(); }

 protected:
  backend::Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<backend::Backend> inner_;
};

}  // namespace skald::diagnose
