// Where bytes go: a file that appears only when it is whole, or a stream that cannot be taken back.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "skald/error.h"

namespace skald::audio {

/// The reader of a pipe has gone away. The program must ignore SIGPIPE for this to be seen.
class ClosedPipe : public Error {
 public:
  using Error::Error;
};

/// One output. A regular (or new) file is written under a temporary name in the same folder and renamed by
/// commit(), so its name never shows half a file; symbolic links are followed and the mode of a replaced file
/// is kept. Devices, FIFOs and open descriptors are written directly. Used from one thread, but for
/// interrupt().
class OutputFile {
 public:
  /// Opens the output now, so that an unwritable place is known before any work. Opening a FIFO waits for its
  /// reader. Throws Error(io) naming the path.
  static std::unique_ptr<OutputFile> open(const std::filesystem::path& path);
  /// An open descriptor that stays the caller's, e.g. standard output.
  static std::unique_ptr<OutputFile> attach(int fd, std::string name);
  ~OutputFile();  ///< without commit(): the temporary file is removed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Writes all bytes. Throws ClosedPipe, Error(io), or Error(cancelled) after interrupt().
  void write(std::string_view bytes);
  /// Overwrites bytes written before, counted from the first one of this output; only if seekable().
  void patch(uint64_t offset, std::string_view bytes);
  /// Ends the output: closes and renames. Errors that the system reports only now are thrown here.
  void commit();
  /// From any thread: a write that waits for a slow reader ends within about 0.1 s.
  void interrupt() noexcept { interrupted_ = true; }

  bool seekable() const noexcept { return seekable_; }
  const std::string& name() const noexcept { return name_; }
  /// The temporary file, empty for direct outputs; for cleaning up when the process is about to be ended.
  const std::filesystem::path& temporary() const noexcept { return temporary_; }

 private:
  OutputFile(int fd, std::string name);
  void wait_until_writable();
  [[noreturn]] void fail(const char* doing, int error) const;

  int fd_;
  bool owned_ = true;
  bool seekable_ = false;
  bool regular_ = false;
  uint64_t start_ = 0;  // file position of the first byte
  std::string name_;
  std::filesystem::path target_, temporary_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace skald::audio
