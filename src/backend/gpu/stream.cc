// Queues of work.
#include "backend/gpu/stream.h"

#include <fmt/format.h>

#include <thread>

#include "backend/gpu/kernels/link_args.h"

namespace skald::backend::gpu {

WorkQueue::WorkQueue(const Context& context, Health& health, const Kernels& kernels, std::string name,
                     bool first, int* done, DeviceAddress done_address)
    : context_(context),
      health_(health),
      kernels_(kernels),
      name_(std::move(name)),
      first_(first),
      stream_(make_stream(context, first)),
      count_(context, name_ + ".count", 256),
      done_(done),
      done_address_(done_address) {
  health.count_progress(done);
  staging_ = std::make_unique<Staging>(
      context, name_ + ".staging", [this] { return mark(); }, [this](uint32_t number) { await(number); });
  launch(Launch::make(
      "link_rows", 1, kLinkThreads,
      LinkRowsArgs{nullptr, reinterpret_cast<unsigned char*>(count_.address()), 0, 0, 1, 16, 16, 1}));
}

void WorkQueue::put(const Launch& l) {
  unmarked_ = true;
  health_.check(kernels_.launch(l, stream_.get(), false), fmt::format("launch kernel '{}'", l.kernel));
}

void WorkQueue::launch(const Launch& l) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  check_when_idle();
  put(l);
}

void WorkQueue::copy_in(DeviceAddress to, const void* from, size_t bytes) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  check_when_idle();
  unmarked_ = true;
  health_.check(context_.api().copy_in(to, from, bytes, stream_.get()), "copy to the device");
}

void WorkQueue::note(std::string_view what) {
  const uint32_t number = submitted_ + 1;
  work_[number % kRemembered] = what.data();
  submitted_ = number;
  unmarked_ = false;
}

uint32_t WorkQueue::run(const RecordedProgram& program) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  check_when_idle();
  if (!program.graph) {
    for (const Launch& l : program.launches) put(l);
  } else {
    health_.check(context_.api().launch_graph(program.graph.get(), stream_.get()),
                  fmt::format("start program '{}'", program.name));
  }
  note(program.name);
  return submitted_;
}

void WorkQueue::launch(const GraphExec& graph) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  unmarked_ = true;
  health_.check(context_.api().launch_graph(graph.get(), stream_.get()), "start a graph");
}

GraphExec WorkQueue::captured(const std::vector<Launch>& launches) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  return capture(context_, health_, kernels_, stream_.get(), launches);
}

StreamHandle WorkQueue::stream() const {
  const std::lock_guard lock(mutex_);
  return stream_.get();
}

void WorkQueue::record(const Event& event) {
  health_.enter();
  const std::lock_guard lock(mutex_);
  health_.check(context_.api().record_event(event.get(), stream_.get()), "record an event");
}

Launch WorkQueue::mark_launch() const {
  return Launch::make(
      "link_mark", 1, 64,
      LinkMarkArgs{reinterpret_cast<kp_u32*>(count_.address()), reinterpret_cast<int*>(done_address_)});
}

uint32_t WorkQueue::mark() {
  health_.enter();
  const std::lock_guard lock(mutex_);
  put(mark_launch());
  note("copies");
  return submitted_;
}

void WorkQueue::await(uint32_t number) {
  const auto reached = [&] { return static_cast<int32_t>(done() - number) >= 0; };
  if (!reached()) health_.wait({.reached = reached, .where = [this] { return where(); }, .stream = stream()});
  if (idle() && !unmarked_) staging_->all_done();
}

std::string WorkQueue::where() const {
  const uint32_t done_now = done(), all = submitted_;
  if (done_now == all)
    return fmt::format("on queue '{}', which has done all of its {} pieces of work", name_, all);
  const char* work = all - done_now > kRemembered ? nullptr : work_[(done_now + 1) % kRemembered].load();
  return fmt::format("in program '{}' on queue '{}' ({} of {} pieces of work done)", work ? work : "unknown",
                     name_, done_now, all);
}

void WorkQueue::check_when_idle() {
  constexpr std::chrono::milliseconds kEvery{200};
  const auto now = Watch::Clock::now();
  if (now - checked_ < kEvery || !idle()) return;
  checked_ = now;
  look_for_lost_completion();
}

void WorkQueue::find_lost_completion() {
  health_.enter();
  // The mark of a program comes a little after what the program reports.
  for (int i = 0; i < 20 && !idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::lock_guard lock(mutex_);
  look_for_lost_completion();
}

void WorkQueue::look_for_lost_completion() {
  // The mark is seen a little before its own completion; a fifth of a second is patience enough.
  constexpr int kLooks = 200;
  // Work without a mark may still run: then the driver's answer says nothing.
  if (unmarked_ || !idle()) return;
  for (int i = 0; i < kLooks; ++i) {
    if (health_.stream_is_complete(stream_.get())) return;
    std::this_thread::sleep_for(std::chrono::microseconds(i < 10 ? 20 : 1000));
  }
  ++lost_;
  context_.keep_everything();
  Stream fresh = make_stream(context_, first_);
  stream_.leak();  // destroying it might wait for what never comes
  stream_ = std::move(fresh);
}

}  // namespace skald::backend::gpu
