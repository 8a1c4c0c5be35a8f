// A bounded queue in front of as many threads as requests may be in work.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace skald::server {

/// One request waiting or in work. `run` is called once on a worker, unless the request was withdrawn before.
struct Task {
  std::function<void(double waited_seconds)> run;
};

/// Any thread.
class Dispatcher {
 public:
  /// `workers` requests run at once, `bound` more may wait.
  Dispatcher(size_t workers, size_t bound);
  /// Waits for what is in work; tasks that wait are dropped.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// False where the queue is full or closed.
  bool submit(const std::shared_ptr<Task>& task);
  /// Takes a task out of the queue; false where it has begun already (or was never there).
  bool withdraw(const Task* task);
  /// Nothing new is taken; false while something is waiting or in work.
  bool close();

  size_t waiting() const;
  size_t running() const;
  /// Seconds until a place is likely, from the mean time of the requests so far: 1 to 60.
  int retry_after() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Task> task;
    Clock::time_point since;
  };
  void work();

  const size_t workers_, bound_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> queue_;
  size_t running_ = 0;
  bool closed_ = false, ending_ = false;
  double mean_seconds_ = 5;
  std::vector<std::thread> threads_;
};

}  // namespace skald::server
