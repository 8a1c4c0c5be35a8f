// A device that does what another does, and tells a test of every call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/ops.h"

namespace skald::test {

class WatchedDevice final : public backend::Backend {
 public:
  /// Called before "load" (with the tensor's name), "run" and "run_op" (with the program's), "write", "read"
  /// and "zero"; what it throws the call throws. Any thread.
  using Watch = std::function<void(std::string_view call, std::string_view name)>;

  WatchedDevice(std::unique_ptr<backend::Backend> inner, Watch watch)
      : inner_(std::move(inner)), watch_(std::move(watch)) {}

  std::string_view name() const override { return "watched"; }
  backend::Weight load(backend::WeightRole role, const backend::TensorSource& source) override {
    watch_("load", source.name);
    return inner_->load(role, source);
  }
  backend::Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows,
                           int32_t width) override {
    return inner_->allocate(label, dtype, rows, width);
  }
  void write(const backend::Buffer& to, std::span<const std::byte> bytes) override {
    watch_("write", {}), inner_->write(to, bytes);
  }
  void read(const backend::Buffer& from, std::span<std::byte> bytes) override {
    watch_("read", {}), inner_->read(from, bytes);
  }
  void zero(const backend::Buffer& view) override { watch_("zero", {}), inner_->zero(view); }
  backend::Program record(std::string_view name, const std::function<void(backend::Ops&)>& body) override {
    const backend::Program program = inner_->record(name, body);
    names_.resize(static_cast<size_t>(program.id) + 1);
    names_.back() = name;
    return program;
  }
  void run(backend::Program program) override {
    watch_("run", names_.at(static_cast<size_t>(program.id))), inner_->run(program);
  }
  std::span<const backend::OpRecord> ops(backend::Program program) const override {
    return inner_->ops(program);
  }
  void run_op(backend::Program program, size_t index) override {
    watch_("run_op", names_.at(static_cast<size_t>(program.id))), inner_->run_op(program, index);
  }
  uint64_t progress() const override { return inner_->progress(); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  size_t buffer_bytes() const override { return inner_->buffer_bytes(); }

 private:
  std::unique_ptr<backend::Backend> inner_;
  Watch watch_;
  std::vector<std::string> names_;
};

}  // namespace skald::test
