// Pauses between looks.
#include "backend/gpu/watchdog.h"

#include <atomic>
#include <thread>

namespace skald::backend::gpu {

void Backoff::pause() {
  constexpr int kSpins = 300, kShort = 2300;
  ++looks_;
  if (looks_ < kSpins) {
    // The write that tells the device of new work may still stand in this processor's write-combining
    // buffers, which a loop of loads never empties: seen on a virtual machine as a start that waits for the
    // first sleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(looks_ < kShort ? 20 : 200));
}

}  // namespace skald::backend::gpu
