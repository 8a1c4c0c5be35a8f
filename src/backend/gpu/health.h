// Whether a device can still be used, and the one place where waiting for it happens.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/driver/handles.h"
#include "backend/gpu/watchdog.h"
#include "skald/error.h"

namespace skald::backend::gpu {

/// Any thread.
class Health {
 public:
  Health(Context& context, std::string device, int deadline_ms)
      : context_(context), device_(std::move(device)), deadline_(deadline_ms) {}

  /// Throws the error that ended the device, if one did.
  void require() const;
  /// The same, and makes the device current on this thread.
  void enter();
  /// Passes a driver's answer on: what means that the device is gone ends it.
  void check(Status status, const std::string& what);
  /// Ends the device: nothing is freed or called any more, and every later call gets this error.
  [[noreturn]] void end(ErrorCode code, const std::string& message);

  /// A word in host memory that the device counts up as it gets on. While any of them moves, nobody is
  /// blamed: what waits may stand behind other work. Once for each queue, before the first wait.
  void count_progress(int* word) { words_.push_back(word); }

  struct Wait {
    std::function<bool()> reached;
    std::function<std::string()> where;  ///< "in program 'frame.codes x1', ..."
    StreamHandle stream = nullptr;       ///< asked about its health when nothing moves
  };
  /// Polls until `reached`. Throws Error(device_lost) when the driver gave the device up,
  /// Error(device_wedged) when it makes no progress within the deadline.
  void wait(const Wait& wait);

  const std::string& device() const { return device_; }
  uint64_t questions() const { return questions_; }  ///< to the driver, about completion
  /// Changes whenever one of the words does.
  uint64_t progress() const;
  /// Asks whether a stream is complete; throws when the device is gone.
  bool stream_is_complete(StreamHandle stream);

 private:
  Context& context_;
  std::vector<int*> words_;
  const std::string device_;
  const std::chrono::milliseconds deadline_;
  std::atomic<uint64_t> questions_ = 0;
  std::atomic<bool> ended_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace skald::backend::gpu
