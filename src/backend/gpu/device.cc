// A GPU as a backend.
#include "backend/gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "backend/gpu/fusion.h"
#include "backend/gpu/recorder.h"

namespace skald::backend {
namespace gpu {

namespace {

Kernels load_kernels(const OpenDevice& open, const Context& context, const GpuOptions& options) {
  return Kernels(context, device_code(kernel_modules(), *open.driver, open.info, open.compiler, options),
                 open.info.architecture);
}

size_t view_bytes(const Buffer& view) {
  return static_cast<size_t>(view.rows) * static_cast<size_t>(view.width) * dtype_size(view.dtype);
}

/// Rows of a view in pieces that staging can take: f(bytes from the view's first element on the device,
/// position in the packed bytes, rows, bytes of a row, stride on the device).
template <class F>
void each_piece(const Buffer& view, F&& f) {
  const uint64_t element = dtype_size(view.dtype), row = static_cast<uint64_t>(view.width) * element,
                 stride = static_cast<uint64_t>(view.stride) * element,
                 rows = static_cast<uint64_t>(view.rows);
  if (rows == 0 || row == 0) return;
  if (rows == 1 || stride == row) {
    const uint64_t total = rows * row;
    for (uint64_t at = 0; at < total; at += Staging::kHalf) {
      const uint64_t bytes = std::min<uint64_t>(Staging::kHalf, total - at);
      f(at, at, uint64_t{1}, bytes, bytes);
    }
    return;
  }
  if (row > Staging::kHalf)
    throw Error(ErrorCode::internal, fmt::format("rows of {} bytes with gaps between them", row));
  const uint64_t most = Staging::kHalf / row;
  for (uint64_t first = 0; first < rows; first += most) {
    const uint64_t count = std::min(most, rows - first);
    f(first * stride, first * row, count, row, stride);
  }
}

void check_size(const Buffer& view, size_t given, const char* what) {
  if (given != view_bytes(view))
    throw Error(ErrorCode::internal,
                fmt::format("{}: {} bytes given for {} rows of {}", what, given, view.rows, view.width));
}

}  // namespace

GpuDevice::GpuDevice(OpenDevice open, const GpuOptions& options)
    : open_(std::move(open)),
      traits_{open_.info.warp, open_.info.compute_units,
              options.matrix_units && open_.info.nvidia && open_.info.capability >= 80,
              open_.info.nvidia && open_.info.capability >= 80},
      name_(fmt::format("{} {} ({})", open_.info.id, open_.info.name, open_.info.architecture)),
      precision_(parse_precision(options.weights)),
      fuse_(options.fuse),
      context_(open_.driver, open_.info.index),
      health_(context_, name_, options.deadline_ms),
      kernels_(load_kernels(open_, context_, options)),
      words_(context_, "device words", 4096),
      ring_(context_, health_),
      buffers_(context_),
      pool_(std::min(8, usable_threads().threads)) {
  constexpr const char* kNames[] = {"frames", "codec"};
  for (size_t q = 0; q < queues_.size(); ++q) {
    const size_t at = kFirstDone + q * kDoneStep;
    // The codec fills the gaps that the chain of small launches of a frame leaves.
    queues_[q] = std::make_unique<WorkQueue>(
        context_, health_, kernels_, kNames[q], q == static_cast<size_t>(Queue::frames),
        reinterpret_cast<int*>(words_.as<std::byte>() + at), words_.address() + at);
  }
  zero_bytes(queue(Queue::frames), ring_.beats().address(), ring_.beats().size());
  // The very first piece of work shows whether the device answers at all.
  for (const auto& q : queues_) q->await(q->mark());
}

GpuDevice::~GpuDevice() {
  // Memory is freed when nothing uses it any more. A device that does not come to an end is left as it is.
  try {
    if (!context_.abandoned())
      for (const auto& q : queues_) q->await(q->mark());
  } catch (...) {
    context_.abandon();
  }
}

// ---- moving bytes

LinkRowsArgs GpuDevice::rows_args(DeviceAddress from, uint64_t from_stride, DeviceAddress to,
                                  uint64_t to_stride, uint64_t rows, uint64_t row_bytes) const {
  uint64_t all = from | to | row_bytes;
  if (rows > 1) all |= from_stride | to_stride;
  const uint32_t unit = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
  const uint64_t units = rows * row_bytes / unit;
  const uint64_t blocks = std::clamp<uint64_t>((units + kLinkThreads - 1) / kLinkThreads, 1,
                                               static_cast<uint64_t>(traits_.compute_units) * 8);
  return {.from = reinterpret_cast<const unsigned char*>(from),
          .to = reinterpret_cast<unsigned char*>(to),
          .from_stride = from_stride,
          .to_stride = to_stride,
          .rows = static_cast<kp_u32>(rows),
          .row_units = static_cast<kp_u32>(row_bytes / unit),
          .unit = unit,
          .blocks = static_cast<kp_u32>(blocks)};
}

void GpuDevice::move_rows(WorkQueue& q, const LinkRowsArgs& args) {
  q.launch(Launch::make("link_rows", args.blocks, kLinkThreads, args));
}

void GpuDevice::zero_bytes(WorkQueue& q, DeviceAddress at, uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 30;  // counts in the kernel's arguments are 32 bits
  for (uint64_t done = 0; done < bytes; done += kMost)
    move_rows(q, rows_args(0, 0, at + done, 0, 1, std::min(kMost, bytes - done)));
}

WorkQueue& GpuDevice::settled_queue() {
  health_.require();
  if (selected_ != Queue::frames && unsettled_) {
    WorkQueue& frames = queue(Queue::frames);
    frames.await(frames.mark());
    unsettled_ = false;
  }
  return queue(selected_);
}

void GpuDevice::upload(DeviceAddress to, std::span<const std::byte> bytes) {
  constexpr size_t kByEngine = size_t{256} << 10;  // below that a kernel is sooner done
  WorkQueue& q = queue(Queue::frames);
  health_.require();
  for (size_t at = 0; at < bytes.size(); at += Staging::kHalf) {
    const size_t n = std::min(Staging::kHalf, bytes.size() - at);
    const Staging::Piece piece = q.staging().take(n);
    std::memcpy(piece.host, bytes.data() + at, n);
    if (n >= kByEngine) {
      q.copy_in(to + at, piece.host, n);
    } else {
      move_rows(q, rows_args(piece.address, 0, to + at, 0, 1, n));
    }
  }
  unsettled_ = true;
}

void GpuDevice::write(const Buffer& to, std::span<const std::byte> bytes) {
  const DeviceAddress at = address(to, "write");
  check_size(to, bytes.size(), "write");
  WorkQueue& q = settled_queue();
  each_piece(to, [&](uint64_t device, uint64_t packed, uint64_t rows, uint64_t row, uint64_t stride) {
    const Staging::Piece piece = q.staging().take(rows * row);
    std::memcpy(piece.host, bytes.data() + packed, rows * row);
    move_rows(q, rows_args(piece.address, row, at + device, stride, rows, row));
  });
}

void GpuDevice::read(const Buffer& from, std::span<std::byte> bytes) {
  const DeviceAddress at = address(from, "read");
  check_size(from, bytes.size(), "read");
  WorkQueue& q = settled_queue();
  ++reads_;
  each_piece(from, [&](uint64_t device, uint64_t packed, uint64_t rows, uint64_t row, uint64_t stride) {
    const Staging::Piece piece = q.staging().take(rows * row);
    move_rows(q, rows_args(at + device, stride, piece.address, row, rows, row));
    q.await(q.mark());
    std::memcpy(bytes.data() + packed, piece.host, rows * row);
  });
  check_fault();
}

void GpuDevice::zero(const Buffer& view) {
  const DeviceAddress at = address(view, "zero");
  WorkQueue& q = settled_queue();
  const uint64_t element = dtype_size(view.dtype);
  if (view_bytes(view) == 0) return;
  if (view.rows == 1 || view.stride == view.width) {
    zero_bytes(q, at, view_bytes(view));
  } else {
    move_rows(q, rows_args(0, 0, at, static_cast<uint64_t>(view.stride) * element,
                           static_cast<uint64_t>(view.rows), static_cast<uint64_t>(view.width) * element));
  }
}

// ---- what the model asks for once

Buffer GpuDevice::allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) {
  health_.require();
  const Buffer buffer = buffers_.allocate(label, dtype, rows, width);
  zero_bytes(queue(Queue::frames), buffers_.address(buffer, "allocate"), view_bytes(buffer));
  unsettled_ = true;
  return buffer;
}

Weight GpuDevice::load(WeightRole role, const TensorSource& source) {
  health_.require();
  PackedWeight packed = pack_weight(role, source, precision_, pool_);
  const std::span<const std::byte> bytes = packed.data();
  blocks_.emplace_back(context_, std::string(source.name), bytes.size());
  packed.weight.address = blocks_.back().address();
  upload(packed.weight.address, bytes);
  weight_bytes_ += bytes.size();
  weights_.push_back(std::move(packed.weight));
  return {static_cast<int32_t>(weights_.size() - 1)};
}

const DeviceWeight& GpuDevice::weight(Weight weight, const std::string& what) const {
  if (weight.id < 0 || static_cast<size_t>(weight.id) >= weights_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such weight", what));
  return weights_[static_cast<size_t>(weight.id)];
}

uint64_t GpuDevice::scratch(size_t bytes) {
  // Launches hold addresses, so scratch that grew stays where it was for those that were recorded before.
  Scratch& s = scratch_[static_cast<size_t>(selected_)];
  if (bytes > s.size) {
    const size_t size = std::max(bytes, 2 * s.size);
    blocks_.emplace_back(context_, "scratch", size);
    s = {blocks_.back().address(), size};
  }
  return s.address;
}

uint64_t GpuDevice::zeroed(size_t bytes) {
  blocks_.emplace_back(context_, "zeroed words", bytes);
  zero_bytes(queue(Queue::frames), blocks_.back().address(), bytes);
  unsettled_ = true;
  return blocks_.back().address();
}

// ---- programs

Program GpuDevice::record(std::string_view name, const std::function<void(Ops&)>& body) {
  health_.require();
  auto program = std::make_unique<RecordedProgram>();
  program->name = name;
  program->queue = selected_;
  Recorder recorder(*this, program->name, program->ops, next_op_);
  body(recorder);
  next_op_ += static_cast<uint32_t>(program->ops.size());
  WorkQueue& q = settled_queue();
  for (const RecordedOp& op : program->ops) program->records.push_back(op.record);
  program->launches = fuse_ ? fuse(program->ops) : unfused(program->ops);
  program->launches.push_back(q.mark_launch());
  program->graph = q.captured(program->launches);
  programs_.push_back(std::move(program));
  return {static_cast<int32_t>(programs_.size() - 1)};
}

const RecordedProgram& GpuDevice::program(Program program) const {
  if (program.id < 0 || static_cast<size_t>(program.id) >= programs_.size())
    throw Error(ErrorCode::internal, fmt::format("no program {}", program.id));
  return *programs_[static_cast<size_t>(program.id)];
}

void GpuDevice::run(Program id) {
  const RecordedProgram& p = program(id);
  if (p.queue != Queue::frames) settled_queue();
  WorkQueue& q = queue(p.queue);
  ++programs_run_;
  if (!trace_) {
    q.run(p);
    return;
  }
  Event from = make_event(context_), to = make_event(context_);
  q.record(from);
  q.run(p);
  q.record(to);
  trace_->push_back({id, std::move(from), std::move(to)});
}

std::vector<TracedRun> GpuDevice::end_trace() {
  for (const auto& q : queues_) q->await(q->mark());
  const std::vector<Traced> traced = std::exchange(trace_, std::nullopt).value_or(std::vector<Traced>{});
  std::vector<TracedRun> runs;
  for (const Traced& t : traced) {
    float from = 0, to = 0;
    // Behind a lost completion an event is never reported.
    if (context_.api().elapsed(&from, traced.front().from.get(), t.from.get()) != kSuccess ||
        context_.api().elapsed(&to, traced.front().from.get(), t.to.get()) != kSuccess)
      return {};
    runs.push_back({t.program, from, to});
  }
  return runs;
}

double GpuDevice::timed(WorkQueue& q, const std::function<void()>& work) {
  q.await(q.mark());
  const Event from = make_event(context_), to = make_event(context_);
  q.record(from);
  work();
  q.record(to);
  q.await(q.mark());
  float ms = 0;
  // Behind a lost completion the events are never reported: then there is no time.
  return context_.api().elapsed(&ms, from.get(), to.get()) == kSuccess ? static_cast<double>(ms) : 0;
}

ProgramTime GpuDevice::run_timed(Program id) {
  const RecordedProgram& p = program(id);
  WorkQueue& q = p.queue == Queue::frames ? queue(Queue::frames) : settled_queue();
  ++programs_run_;
  return {.ms = timed(q, [&] { q.run(p); }), .launches = static_cast<int32_t>(p.launches.size())};
}

std::vector<KernelTime> GpuDevice::time_kernels(Program id) {
  constexpr int kRuns = 4;
  const RecordedProgram& p = program(id);
  WorkQueue& q = queue(p.queue);
  std::map<std::string, std::vector<Launch>> by_name;
  for (const Launch& l : p.launches)  // without those that move on what the host counts
    if (l.kernel != "advance" && l.kernel != "publish_frame" && l.kernel != "link_mark")
      by_name[l.kernel].push_back(l);
  std::vector<KernelTime> times;
  for (const auto& [name, launches] : by_name) {
    const GraphExec graph = q.captured(launches);
    if (!graph) return {};
    q.launch(graph);
    const double ms = timed(q, [&] {
      for (int i = 0; i < kRuns; ++i) q.launch(graph);
    });
    times.push_back({name, static_cast<int32_t>(launches.size()), ms / kRuns});
  }
  return times;
}

std::span<const OpRecord> GpuDevice::ops(Program id) const { return program(id).records; }

void GpuDevice::run_op(Program id, size_t index) {
  const RecordedProgram& p = program(id);
  if (index >= p.ops.size())
    throw Error(ErrorCode::internal,
                fmt::format("program '{}' has {} ops, not {}", p.name, p.ops.size(), index + 1));
  for (const Launch& l : p.ops[index].launches) queue(p.queue).launch(l);
}

// ---- what the device tells

FrameReport GpuDevice::await_report(const SlotArrays&, int32_t slot, int32_t run, std::span<int32_t> codes) {
  WorkQueue& q = queue(Queue::frames);
  const FrameReport report =
      ring_.await(slot, run, codes,
                  {.reached = {},
                   .where =
                       [&] {
                         return fmt::format("{}, waiting for run {} of slot {}, whose last report is run {}",
                                            q.where(), run, slot, ring_.last_run(slot));
                       },
                   .stream = q.stream()});
  check_fault();
  return report;
}

std::string GpuDevice::op_name(uint32_t number) const {
  for (const auto& p : programs_)
    for (const RecordedOp& op : p->ops)
      if (op.number == number)
        return fmt::format("program '{}', {} ({})", p->name, op.record.kind, op.record.label);
  return fmt::format("op {}", number);
}

void GpuDevice::check_fault() {
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(words_.as<std::byte>() + kFaultWord));
  if (word.load(std::memory_order_acquire) == 0) return;
  const Fault fault = decode_fault(word.exchange(0));
  throw Error(ErrorCode::internal, fmt::format("{}: {}", op_name(fault.op), describe(fault)));
}

DeviceCounters GpuDevice::counters() const {
  DeviceCounters c{.programs = programs_run_, .reads = reads_, .waits = 0, .lost_completions = 0};
  if (!context_.abandoned())
    for (const auto& q : queues_) q->find_lost_completion();
  for (const auto& q : queues_) c.lost_completions += q->lost_completions();
  c.waits = health_.questions();
  return c;
}

std::string GpuDevice::status() const {
  std::string text = fmt::format("{}{}\n", name_, context_.abandoned() ? ", given up" : "");
  for (const auto& q : queues_)
    text += fmt::format("  {}: {} of {} pieces of work done{}{}\n", q->name(), q->done(), q->submitted(),
                        q->idle() ? "" : ", now ", q->idle() ? "" : q->where());
  text += fmt::format("  {} programs, {} reads, {} questions to the driver, {} lost completions\n",
                      programs_run_.load(), reads_.load(), health_.questions(),
                      queues_[0]->lost_completions() + queues_[1]->lost_completions());
  return text;
}

DeviceSpeed GpuDevice::measure_speed() {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kRuns = 6;
  using Clock = std::chrono::steady_clock;
  WorkQueue& q = queue(Queue::frames);
  const size_t bytes = std::min(kBytes, open_.info.memory / 8) / 16 * 16;
  const DeviceBlock area(context_, "speed", bytes), result(context_, "speed.result", 1 << 20);
  zero_bytes(q, area.address(), bytes);
  const auto blocks = static_cast<kp_u32>(traits_.compute_units * 8);
  const Launch once =
      Launch::make("link_read", blocks, kLinkThreads,
                   LinkReadArgs{reinterpret_cast<const unsigned char*>(area.address()),
                                reinterpret_cast<kp_u32*>(result.address()), bytes / 16, blocks});
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    q.await(q.mark());
    const auto from = Clock::now();
    q.launch(once);
    q.await(q.mark());
    best = std::max(best,
                    static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - from).count());
  }
  return {.read_bytes_per_second = best};
}

}  // namespace gpu

std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options, GpuInfo* chosen) {
  gpu::OpenDevice open = gpu::open_device(options);
  if (chosen) *chosen = open.info;
  return std::make_unique<gpu::GpuDevice>(std::move(open), options);
}

}  // namespace skald::backend
