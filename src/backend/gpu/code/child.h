// A program run beside this process, with a deadline: whatever it does, this process goes on.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace skald::backend::gpu {

struct ChildResult {
  bool started = false, timed_out = false;
  int exit_code = -1;  ///< of a child that ended by itself
  int signal = 0;      ///< that ended it
  std::string
      output;  ///< the end of what it wrote to standard output and standard error, at most kMost bytes

  static constexpr size_t kMost = 16384;
  bool ok() const { return started && !timed_out && signal == 0 && exit_code == 0; }
  /// "was ended by signal 6 (Aborted)", "did not end within 20 s", "ended with status 3".
  std::string describe(int deadline_ms) const;
};

/// Runs a program and waits for its end, at most `deadline_ms`; then its whole process group is killed. The
/// descriptors in `pass` become 3, 4, ... in the child; everything else is closed to it. Safe beside other
/// threads: posix_spawn runs no code of ours between fork and exec.
/// `enough`: somebody else may end the wait, and the child with it.
ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                      const std::vector<int>& pass, int deadline_ms,
                      const std::atomic<bool>* enough = nullptr);

/// The same for a program that may hang once and not again: while it has not ended another one is started
/// every `again_ms`. The first goes on, as a slow start is no hang, and so does the last. The first that ends
/// counts; the others are killed.
ChildResult run_child_again(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                            int deadline_ms, int again_ms);

/// Anonymous memory with a descriptor. Throws Error(io).
class MemoryFile {
 public:
  explicit MemoryFile(const char* name);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  int fd() const { return fd_; }
  void write(std::string_view bytes) const;  ///< and goes back to the start
  std::string read() const;                  ///< all of it

 private:
  int fd_;
};

}  // namespace skald::backend::gpu
