// Ctrl-C and friends: the first asks the work to stop, the second ends the process. Nothing half-written
// stays.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

namespace skald::cli {

/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 are blocked for the whole process and read by one thread, so no
/// handler runs in the middle of anything. Must be made before any other thread. SIGPIPE and SIGXFSZ are
/// ignored: writes report them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// What the first signal does; called on the signal thread. Without it (or with null) the process ends at
  /// once.
  void on_signal(std::function<void()> cancel);
  /// What SIGUSR1 does; called on the signal thread. Without it (or with null) the signal does nothing.
  void on_status(std::function<void()> tell);
  /// A file to remove if the process is ended at once; empty = none.
  void remove_at_exit(std::filesystem::path temporary);
  /// Number of the first signal, or 0.
  int received() const { return received_; }

 private:
  void run();
  void handle(int signal);

  int signal_fd_ = -1, stop_fd_ = -1;
  std::mutex mutex_;
  std::function<void()> cancel_, tell_;
  std::filesystem::path temporary_;
  std::atomic<int> received_ = 0;
  std::thread thread_;
};

}  // namespace skald::cli
