// This program once more as a worker: a process that may crash, hang or lose its device without taking the
// server along.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace skald::server {

struct WorkerProcess {
  pid_t pid = -1;
  int output = -1;  ///< reading end of its standard output; the caller closes it
};

/// Runs /proc/self/exe with these words behind the program's name, in a process group of its own, which is
/// asked to end when the calling thread ends. Standard error is shared. Throws Error(io).
WorkerProcess start_worker(const std::vector<std::string>& words);

/// A word for how a process ended, from what waitpid() gave: "status 4", "signal 11".
std::string end_of_process(int wait_status);

/// How long to wait before another process is started: longer every time that one could not start, never long
/// after one that could.
class Patience {
 public:
  /// After a process that was ready, or never was, and lived for so long.
  std::chrono::milliseconds after(bool was_ready, std::chrono::nanoseconds lived);

 private:
  int short_lives_ = 0, failed_starts_ = 0;  // in a row
};

}  // namespace skald::server
