// Waiting with a deadline.
#include "backend/gpu/health.h"

#include <fmt/format.h>

namespace skald::backend::gpu {

void Health::require() const {
  if (!ended_) return;
  const std::lock_guard lock(mutex_);
  throw Error(*error_);
}

void Health::enter() {
  require();
  check(context_.try_enter(), "select the device");
}

void Health::end(ErrorCode code, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_.emplace(code, message);
    ended_ = true;
  }
  context_.abandon();
  require();
  throw Error(code, message);  // not reached
}

void Health::check(Status status, const std::string& what) {
  if (status == kSuccess) return;
  if (is_fatal(status))
    end(ErrorCode::device_lost, fmt::format("{} was lost, it answers {} to '{}'; restart the program, and "
                                            "look into the system's log for what the "
                                            "driver reports",
                                            device_, context_.driver().describe(status), what));
  context_.driver().fail(status, fmt::format("{} on {}", what, device_));
}

bool Health::stream_is_complete(StreamHandle stream) {
  enter();
  ++questions_;
  const Status status = context_.api().query_stream(stream);
  if (status == kNotReady) return false;
  check(status, "ask how far the work is");
  return true;
}

uint64_t Health::progress() const {
  uint64_t sum = 0;
  for (int* word : words_)
    sum += static_cast<uint32_t>(std::atomic_ref<int>(*word).load(std::memory_order_relaxed));
  return sum;
}

void Health::wait(const Wait& wait) {
  constexpr std::chrono::milliseconds kAsk{250};
  Watch watch(deadline_);
  Backoff backoff;
  std::chrono::milliseconds asked{0};
  while (!wait.reached()) {
    require();
    if (!watch.look(progress())) {
      if (wait.reached()) return;
      end(ErrorCode::device_wedged,
          fmt::format("{} stands still: no progress for {:.1f} s {}; the request failed, and so will others "
                      "until the "
                      "program is started again",
                      device_, static_cast<double>(watch.still().count()) / 1000.0, wait.where()));
    }
    if (watch.still() < asked) asked = std::chrono::milliseconds(0);
    if (watch.still() >= asked + kAsk) {
      asked = watch.still();
      stream_is_complete(wait.stream);  // throws where the driver knows more than that nothing moves
    }
    backoff.pause();
  }
}

}  // namespace skald::backend::gpu
