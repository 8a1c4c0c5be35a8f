// Pauses between looks.
#include "backend/gpu/watchdog.h"

#include <thread>

namespace skald::backend::gpu {

void Backoff::pause() {
  constexpr int kSpins = 2000, kShort = 2200;
  ++looks_;
  if (looks_ < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(looks_ < kShort ? 20 : 200));
}

}  // namespace skald::backend::gpu
