// The CPU device: memory, weights, recorded programs.
#include "backend/cpu/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "backend/cpu/recorder.h"
#include "skald/error.h"

namespace skald::backend {

namespace cpu {

CpuDevice::CpuDevice(const Kernels& kernels, int threads, WeightPrecision precision, Compute compute)
    : kernels_(kernels),
      precision_(precision),
      compute_(compute),
      pool_(threads),
      name_(fmt::format("cpu {} x{}{}", target_name(kernels), threads,
                        compute == Compute::fast ? ", fast" : "")) {}

Weight CpuDevice::load(WeightRole role, const TensorSource& source) {
  const Layout layout = choose_layout(precision_, compute_, role, source);
  weights_.push_back(std::make_unique<LoadedWeight>(load_weight(role, source, layout, pool_, arena_)));
  weight_bytes_ += weights_.back()->bytes();
  return {static_cast<int32_t>(weights_.size() - 1)};
}

Buffer CpuDevice::allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) {
  if (rows > INT32_MAX)
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format(
            "buffer '{}' of {} rows is more than a view can address; lower the number of slots or frames",
            label, rows));
  const size_t bytes = checked_bytes(label, rows, width, dtype_size(dtype));
  allocations_.push_back({std::string(label), Mapping(label, bytes)});
  buffer_bytes_ += bytes;
  return {.id = static_cast<int32_t>(allocations_.size() - 1),
          .dtype = dtype,
          .rows = static_cast<int32_t>(rows),
          .width = width,
          .stride = width};
}

std::byte* CpuDevice::locate(const Buffer& view, const std::string& what) const {
  if (view.id < 0 || static_cast<size_t>(view.id) >= allocations_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such buffer", what));
  const Allocation& allocation = allocations_[static_cast<size_t>(view.id)];
  return allocation.memory.data() + checked_offset(view, allocation.memory.size(), allocation.label, what);
}

const LoadedWeight& CpuDevice::weight(Weight weight, const std::string& what) const {
  if (weight.id < 0 || static_cast<size_t>(weight.id) >= weights_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such weight", what));
  return *weights_[static_cast<size_t>(weight.id)];
}

namespace {

/// Calls f(memory, bytes position, bytes) for every row of a view.
template <class F>
void each_row(const CpuDevice& device, const Buffer& view, size_t given, const char* what, F&& f) {
  std::byte* base = device.locate(view, what);
  const size_t element = dtype_size(view.dtype), row = static_cast<size_t>(view.width) * element;
  if (given != row * static_cast<size_t>(view.rows))
    throw Error(ErrorCode::internal,
                fmt::format("{}: {} bytes given for {} rows of {}", what, given, view.rows, row));
  if (row == 0) return;
  for (int32_t r = 0; r < view.rows; ++r)
    f(base + r * view.stride * static_cast<int64_t>(element), static_cast<size_t>(r) * row, row);
}

size_t view_bytes(const Buffer& view) {
  return static_cast<size_t>(view.rows) * static_cast<size_t>(view.width) * dtype_size(view.dtype);
}

}  // namespace

void CpuDevice::write(const Buffer& to, std::span<const std::byte> bytes) {
  each_row(*this, to, bytes.size(), "write",
           [&](std::byte* row, size_t at, size_t n) { std::memcpy(row, bytes.data() + at, n); });
}

void CpuDevice::read(const Buffer& from, std::span<std::byte> bytes) {
  each_row(*this, from, bytes.size(), "read",
           [&](std::byte* row, size_t at, size_t n) { std::memcpy(bytes.data() + at, row, n); });
}

void CpuDevice::zero(const Buffer& view) {
  each_row(*this, view, view_bytes(view), "zero",
           [](std::byte* row, size_t, size_t n) { std::memset(row, 0, n); });
}

Program CpuDevice::record(std::string_view name, const std::function<void(Ops&)>& body) {
  RecordedProgram program{std::string(name), {}, {}};
  Recorder recorder(*this, program);
  body(recorder);
  programs_.push_back(std::move(program));
  return {static_cast<int32_t>(programs_.size() - 1)};
}

const RecordedProgram& CpuDevice::program(Program program) const {
  if (program.id < 0 || static_cast<size_t>(program.id) >= programs_.size())
    throw Error(ErrorCode::internal, fmt::format("no program {}", program.id));
  return programs_[static_cast<size_t>(program.id)];
}

void CpuDevice::run(Program id) {
  for (const auto& call : program(id).calls) {
    call->run();
    calls_run_.fetch_add(1, std::memory_order_relaxed);
  }
}

std::span<const OpRecord> CpuDevice::ops(Program id) const { return program(id).records; }

void CpuDevice::run_op(Program id, size_t index) {
  const RecordedProgram& p = program(id);
  if (index >= p.calls.size())
    throw Error(ErrorCode::internal,
                fmt::format("program '{}' has {} ops, not {}", p.name, p.calls.size(), index + 1));
  p.calls[index]->run();
}

void CpuDevice::reserve_scratch(size_t bytes) {
  if (bytes > scratch_.size()) scratch_ = Mapping("scratch", bytes);
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  const cpu::Kernels* kernels = cpu::find_kernels(options.target);
  if (!kernels)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("SIMD target '{}' is not available; this machine has {}", options.target,
                            fmt::join(cpu_targets(), ", ")));
  if (options.threads < 0 || options.threads > 1024)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} threads asked for; give 1 to 1024, or 0 for all", options.threads));
  const int threads = options.threads > 0 ? options.threads : usable_threads().threads;
  return std::make_unique<cpu::CpuDevice>(*kernels, threads, parse_precision(options.weights),
                                          cpu::parse_compute(options.compute));
}

double cpu_matrix_bytes(const std::string& weights, bool bf16_source, const std::string& compute) {
  const TensorSource source{.dtype = bf16_source ? Dtype::bf16 : Dtype::f32};
  const cpu::Layout layout =
      cpu::choose_layout(parse_precision(weights), cpu::parse_compute(compute), WeightRole::matrix, source);
  // Without what leads a panel whatever its length.
  const int64_t bytes = cpu::panel_bytes(layout, kScaleInputs) - cpu::panel_bytes(layout, 0);
  return static_cast<double>(bytes) / (kScaleInputs * cpu::kPanel);
}

std::vector<std::string> cpu_targets() {
  std::vector<std::string> names;
  for (const cpu::Kernels* kernels : cpu::usable_kernels()) names.push_back(cpu::target_name(*kernels));
  return names;
}

}  // namespace skald::backend
