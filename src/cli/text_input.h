// Where the text comes from: an argument, a file, standard input, or a pipe that is still being written.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "engine/long_text.h"
#include "text/utf8.h"

namespace skald::cli {

/// Everything up to the end of a descriptor. Throws Error(io) naming it.
std::string read_all(int fd, const std::string& name);
/// The whole text of a file, decoded (see text::decode_text).
std::string read_text_file(const std::string& path);

/// Reads a pipe while the speech is computed, a bounded amount ahead.
class ArrivingText {
 public:
  /// The descriptor stays the caller's.
  ArrivingText(int fd, std::string name);
  ~ArrivingText();
  ArrivingText(const ArrivingText&) = delete;
  ArrivingText& operator=(const ArrivingText&) = delete;

  /// For engine::TextSource: waits for text. Reports `quiet` once when the writer has paused for kQuietMs.
  engine::TextArrival next();
  /// From any thread: a waiting next() throws Error(cancelled).
  void cancel() noexcept;

  static constexpr int kQuietMs = 200;
  static constexpr size_t kBound = 1 << 20;  ///< bytes read ahead

 private:
  void run();
  void add(std::string text, bool end);

  const int fd_;
  const std::string name_;
  int stop_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string ready_;
  bool ended_ = false, cancelled_ = false, quiet_reported_ = true;
  std::exception_ptr failure_;
  text::TextDecoder decoder_;
  std::thread thread_;
};

}  // namespace skald::cli
