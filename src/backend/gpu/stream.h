// A queue of work on the device, and how far it has come.
//
// Behind every piece of work that anybody may wait for stands a mark: a tiny kernel that counts up a word in
// coherent host memory. The host polls that word. No completion signal of the driver is needed, so one that
// is lost costs nothing.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/health.h"
#include "backend/gpu/launch.h"
#include "backend/gpu/memory.h"
#include "backend/gpu/program.h"

namespace skald::backend::gpu {

class WorkQueue {
 public:
  /// `done` is this queue's word of coherent host memory, zero. `first`: its work goes before that of others.
  WorkQueue(const Context& context, Health& health, const Kernels& kernels, std::string name, bool first,
            int* done, DeviceAddress done_address);

  const std::string& name() const { return name_; }
  StreamHandle stream() const;

  /// Hands one launch over, without a mark.
  void launch(const Launch& launch);
  /// Copies page-locked host memory to the device.
  void copy_in(DeviceAddress to, const void* from, size_t bytes);
  /// Hands a program over; its graph ends with this queue's mark. Returns the mark's number.
  uint32_t run(const RecordedProgram& program);
  /// Hands a graph over, without a mark of its own.
  void launch(const GraphExec& graph);
  /// Records launches as a graph; empty where the driver cannot. Nobody asks about the stream meanwhile: that
  /// would spoil the recording.
  GraphExec captured(const std::vector<Launch>& launches);
  /// Puts an event behind everything so far.
  void record(const Event& event);
  /// Puts a mark behind everything so far and returns its number.
  uint32_t mark();
  /// The launch that mark() makes, to end a graph with.
  Launch mark_launch() const;

  /// Waits for a mark. Throws Error(device_lost), Error(device_wedged).
  void await(uint32_t number);

  // Any thread, as is find_lost_completion.
  uint32_t submitted() const { return submitted_; }
  uint32_t done() const {
    return static_cast<uint32_t>(std::atomic_ref<int>(*done_).load(std::memory_order_acquire));
  }
  bool idle() const { return done() == submitted_; }
  /// "in program 'frame.codes x1' on queue 'frames' (234 of 240 pieces of work done)".
  std::string where() const;

  /// Where everything is done by the marks, asks the driver whether it knows. A completion that it never
  /// reports is counted and the stream replaced, so that nothing waits behind it.
  void find_lost_completion();
  uint64_t lost_completions() const { return lost_; }
  Staging& staging() { return *staging_; }

 private:
  void note(std::string_view what);
  void put(const Launch& launch);
  /// At most every now and then, before new work goes onto an idle queue.
  void check_when_idle();
  void look_for_lost_completion();

  const Context& context_;
  Health& health_;
  const Kernels& kernels_;
  const std::string name_;
  const bool first_;
  Stream stream_;
  DeviceBlock count_;
  int* done_;
  DeviceAddress done_address_;
  std::unique_ptr<Staging> staging_;
  std::atomic<uint32_t> submitted_ = 0;
  std::atomic<bool> unmarked_ = false;  ///< there is work behind the last mark
  std::atomic<uint64_t> lost_ = 0;
  mutable std::mutex mutex_;  ///< of the stream: it may be replaced
  Watch::Clock::time_point checked_{};
  /// What the last marks stand behind, by number; names outlive the queue.
  static constexpr size_t kRemembered = 64;
  std::array<std::atomic<const char*>, kRemembered> work_{};
};

}  // namespace skald::backend::gpu
