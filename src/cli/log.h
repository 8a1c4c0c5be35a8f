// Words for the user on standard error: never in the way of the work, however slowly they are read.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace skald::cli {

/// Lines go to a bounded queue that one thread writes out. A line that repeats the one before it is counted,
/// not written again; lines that find the queue full are dropped and counted. All methods may be called from
/// any thread.
class Log {
 public:
  explicit Log(int fd, size_t bound = 256);
  /// Waits up to a second for a reader, then gives up on what is left.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void error(const std::string& sentence);    ///< "skald: error: ..."
  void warning(const std::string& sentence);  ///< "skald: warning: ...", not with quiet
  void note(const std::string& sentence);     ///< "skald: ...", not with quiet
  /// A line that the next one overwrites; only on a terminal, and only the newest is kept.
  void status(const std::string& line);
  void set_quiet(bool quiet);

 private:
  void post(std::string line);
  void fold_locked();
  void run();
  bool write_all(std::string_view bytes);
  bool given_up();

  const int fd_;
  const size_t bound_;
  const bool terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> lines_;
  std::string status_, last_;
  bool have_status_ = false, status_shown_ = false;
  size_t repeats_ = 0, dropped_ = 0;
  std::atomic<bool> quiet_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace skald::cli
