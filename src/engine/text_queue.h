// Bytes on their way from any thread to the one that speaks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace skald::engine {

/// A bounded queue of bytes. Every function may be called from any thread.
class TextQueue {
 public:
  /// Unread bytes beyond which a writer has to wait. One push is taken as a whole, so that memory is bounded
  /// by this and the largest push.
  static constexpr size_t kBound = 64 * 1024;

  /// Waits while kBound bytes or more are unread. False when the queue was finished or closed.
  bool push(std::string_view bytes);
  /// As push, but false instead of waiting.
  bool try_push(std::string_view bytes);
  void finish();
  /// The reader is gone: writers are woken, later bytes refused.
  void close() noexcept;

  /// Moves at most `most` bytes to `out` (which is overwritten); false when none are there.
  bool take(size_t most, std::string& out);
  /// No byte is left and none will come.
  bool exhausted() const;
  /// Waits for bytes, the end, or close().
  void wait() const;

 private:
  bool add(std::string_view bytes);

  mutable std::mutex mutex_;
  mutable std::condition_variable readable_, writable_;
  std::string bytes_;
  bool finished_ = false, closed_ = false;
};

}  // namespace skald::engine
