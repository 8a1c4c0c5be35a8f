// Fork-join thread pool: one caller, a few helpers, spin briefly and then park.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace skald {

/// How many threads this process may use, and why.
struct ThreadLimit {
  int threads = 1;
  std::string reason;  ///< in words, e.g. "2 of 16 processors (control group quota 2.50)"
};

/// min(affinity mask, control-group quota rounded down), at least 1. `root` is "/" except in tests, which lay
/// out a small tree with proc/self/cgroup and sys/fs/cgroup below it.
ThreadLimit usable_threads(const std::filesystem::path& root = "/");

/// Runs `tasks` calls of a function on the calling thread and `threads - 1` helpers, and returns when all are
/// done. Which thread runs which task is not fixed, so a task must not depend on it. One caller at a time, no
/// nesting. A helper that the system does not schedule never delays a call: the caller takes the remaining
/// tasks itself. Helpers have the default floating point environment; the caller keeps its own.
class Pool {
 public:
  /// Throws Error(device) when the system refuses a thread.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  /// Calls body(task, thread) for every task in [0, tasks), thread in [0, threads()). If calls throw, one of
  /// the exceptions is thrown again here after all tasks have ended.
  template <class Body>
  void run(int tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (tasks <= 1 || helpers_.empty()) {
      for (int i = 0; i < tasks; ++i) body(i, 0);
      return;
    }
    fork(
        tasks, [](void* context, int task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int task, int thread);

  void join();
  void fork(int tasks, Call call, void* context);
  bool take(uint32_t epoch, int thread);
  void help(int thread);

  // (epoch << 32) | tasks not yet taken. A task is taken by a compare-exchange, so a late helper of an
  // earlier call can never take, or see the arguments of, anything but a live task.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};    // what helpers wait on
  alignas(64) std::atomic<uint32_t> pending_{0};  // tasks not yet finished
  alignas(64) std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};

  // Arguments of the live call: written while nothing can be taken, read only after taking a task.
  int tasks_ = 0;
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::exception_ptr failure_;
  std::vector<std::thread> helpers_;
};

}  // namespace skald
