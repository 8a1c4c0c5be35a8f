// A device made of the GPU backend's ops alone.
#include "kernel_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "skald/error.h"

namespace skald::backend::gpu::test {

KernelDevice::KernelDevice(std::unique_ptr<Executor> executor, const std::string& weights, bool matrix)
    : executor_(std::move(executor)),
      traits_(executor_->traits()),
      precision_(parse_precision(weights)),
      pool_(1),
      name_(executor_->name()),
      fault_(executor_->allocate(8, true)) {
  traits_.matrix = matrix;
}

Weight KernelDevice::load(WeightRole role, const TensorSource& source) {
  PackedWeight packed = pack_weight(role, source, precision_, pool_);
  auto weight = std::make_unique<DeviceWeight>(packed.weight);
  weight->address = executor_->allocate(packed.data().size(), true);
  executor_->write(weight->address, packed.data().data(), packed.data().size());
  weight_bytes_ += packed.data().size();
  weights_.push_back(std::move(weight));
  return {static_cast<int32_t>(weights_.size() - 1)};
}

Buffer KernelDevice::allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) {
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(width) * dtype_size(dtype);
  allocations_.push_back({std::string(label), bytes, executor_->allocate(bytes, false)});
  buffer_bytes_ += bytes;
  return {.id = static_cast<int32_t>(allocations_.size() - 1),
          .dtype = dtype,
          .rows = static_cast<int32_t>(rows),
          .width = width,
          .stride = width};
}

uint64_t KernelDevice::address(const Buffer& view, const std::string& what) const {
  if (view.id < 0 || static_cast<size_t>(view.id) >= allocations_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such buffer", what));
  const Allocation& a = allocations_[static_cast<size_t>(view.id)];
  const auto element = static_cast<int64_t>(dtype_size(view.dtype));
  const int64_t last = view.rows == 0 ? 0 : (view.rows - 1) * view.stride + view.width;
  if (view.rows < 0 || view.width < 0 || view.stride < 0 || view.offset < 0 ||
      (view.offset + last) * element > static_cast<int64_t>(a.bytes))
    throw Error(ErrorCode::internal, fmt::format("{}: the view leaves buffer '{}'", what, a.label));
  return a.address + static_cast<uint64_t>(view.offset * element);
}

const DeviceWeight& KernelDevice::weight(Weight weight, const std::string& what) const {
  if (weight.id < 0 || static_cast<size_t>(weight.id) >= weights_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such weight", what));
  return *weights_[static_cast<size_t>(weight.id)];
}

void KernelDevice::write(const Buffer& to, std::span<const std::byte> bytes) {
  const uint64_t base = address(to, "write");
  const size_t element = dtype_size(to.dtype), row = static_cast<size_t>(to.width) * element;
  if (bytes.size() != row * static_cast<size_t>(to.rows))
    throw Error(ErrorCode::internal, "write: wrong size");
  for (int32_t r = 0; r < to.rows; ++r)
    executor_->write(base + static_cast<uint64_t>(r * to.stride) * element,
                     &bytes[static_cast<size_t>(r) * row], row);
}

void KernelDevice::read(const Buffer& from, std::span<std::byte> bytes) {
  const uint64_t base = address(from, "read");
  const size_t element = dtype_size(from.dtype), row = static_cast<size_t>(from.width) * element;
  if (bytes.size() != row * static_cast<size_t>(from.rows))
    throw Error(ErrorCode::internal, "read: wrong size");
  if (from.stride == from.width) return executor_->read(bytes.data(), base, bytes.size());
  for (int32_t r = 0; r < from.rows; ++r)
    executor_->read(&bytes[static_cast<size_t>(r) * row],
                    base + static_cast<uint64_t>(r * from.stride) * element, row);
}

void KernelDevice::zero(const Buffer& view) {
  write(view, std::vector<std::byte>(static_cast<size_t>(view.rows) * static_cast<size_t>(view.width) *
                                     dtype_size(view.dtype)));
}

Program KernelDevice::record(std::string_view name, const std::function<void(Ops&)>& body) {
  Recorded program{std::string(name), {}, {}};
  Recorder recorder(*this, program.name, program.ops, next_op_);
  body(recorder);
  next_op_ += static_cast<uint32_t>(program.ops.size());
  for (const RecordedOp& op : program.ops) program.records.push_back(op.record);
  programs_.push_back(std::move(program));
  return {static_cast<int32_t>(programs_.size() - 1)};
}

const KernelDevice::Recorded& KernelDevice::find(Program program) const {
  if (program.id < 0 || static_cast<size_t>(program.id) >= programs_.size())
    throw Error(ErrorCode::internal, fmt::format("no program {}", program.id));
  return programs_[static_cast<size_t>(program.id)];
}

void KernelDevice::run(const Recorded& program, const RecordedOp& op) {
  if (scratch_) executor_->write(scratch_, poison_.data(), poison_.size());
  for (const Launch& launch : op.launches) executor_->launch(launch);
  uint64_t word = 0;
  executor_->read(&word, fault_, sizeof word);
  if (word == 0) return;
  const uint64_t none = 0;
  executor_->write(fault_, &none, sizeof none);
  const Fault fault = decode_fault(word);
  if (fault.op != op.number)
    throw Error(ErrorCode::internal, fmt::format("op {} reports a fault as op {}", op.number, fault.op));
  throw Error(ErrorCode::internal, fmt::format("{}, {}: {}", program.name, op.record.kind, describe(fault)));
}

void KernelDevice::run(Program program) {
  const Recorded& p = find(program);
  for (const RecordedOp& op : p.ops) run(p, op);
}

std::span<const OpRecord> KernelDevice::ops(Program program) const { return find(program).records; }

void KernelDevice::run_op(Program program, size_t index) {
  const Recorded& p = find(program);
  if (index >= p.ops.size()) throw Error(ErrorCode::internal, "no such op");
  run(p, p.ops[index]);
}

uint64_t KernelDevice::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_ = executor_->allocate(bytes, true), scratch_bytes_ = bytes;
    poison_.assign(bytes, std::byte{0xFF});  // NaN
  }
  return scratch_;
}

uint64_t KernelDevice::zeroed(size_t bytes) { return executor_->allocate(bytes, true); }

void KernelDevice::listen(int slots, int depth, int groups) {
  const int stride = (kRingCodes + groups + 15) / 16 * 16;
  ring_ = {reinterpret_cast<int*>(executor_->allocate(static_cast<size_t>(slots * depth * stride) * 4, true)),
           reinterpret_cast<int*>(executor_->allocate(static_cast<size_t>(slots) * 4, true)), depth, stride,
           slots};
}

std::vector<int> KernelDevice::ring_entry(int slot, int index) {
  std::vector<int> entry(static_cast<size_t>(ring_.stride));
  executor_->read(entry.data(),
                  reinterpret_cast<uint64_t>(ring_.entries + (slot * ring_.depth + index) * ring_.stride),
                  entry.size() * 4);
  return entry;
}

}  // namespace skald::backend::gpu::test
