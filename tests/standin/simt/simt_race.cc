// The race check of the host stand-in. Kernels are compiled with -fsanitize=thread, which makes the compiler
// call a hook at every access to memory; these are our own hooks, the sanitizer's library is not linked. Two
// accesses race when one of them writes, both touch the same byte, the lanes differ, and
//   - same block: no barrier lies between, nor, within one virtual warp, a meeting;
//   - different blocks: no atomic operation happened between them (lenient: any one counts).
// The order in which the lanes happened to run does not matter.
#define SIMT_RUNTIME 1
#include "simt.h"

#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

extern "C" void simt_lds_range(void** first, size_t* bytes);

namespace {

struct Access {
  int tid = -1, bid = 0;
  uint32_t barrier = 0, meeting = 0, atomics = 0;
  uint8_t mask = 0;  ///< bytes of the word
};
struct Cell {
  Access written, read[2];
};

constexpr size_t kMostShared = 99 * 1024;  ///< dynamic, of a block

std::unordered_map<uintptr_t, Cell> cells;
std::vector<std::string> found;
uint32_t atomics = 0;

bool is_shared_memory(uintptr_t address) {
  static uintptr_t first = 0;
  static size_t bytes = 0;
  if (bytes == 0) {
    void* at = nullptr;
    simt_lds_range(&at, &bytes);
    first = reinterpret_cast<uintptr_t>(at);
  }
  return address - first < bytes;
}

bool ordered(const Access& before, const simt_lane& me, uintptr_t address) {
  if (before.tid < 0) return true;
  // Shared memory of another block is other memory; dynamic shared memory lies where the lane says.
  if (before.bid != me.bid)
    return before.atomics != atomics || is_shared_memory(address) ||
           address - reinterpret_cast<uintptr_t>(me.dynamic) < kMostShared;
  if (before.tid == me.tid || before.barrier != me.bar_epoch) return true;
  return before.tid / 32 == me.tid / 32 && before.meeting != me.warp_epoch;
}

void race(const Access& before, const char* what, uintptr_t address, void* code) {
  if (found.size() > 20) return;
  char text[200];
  snprintf(text, sizeof text, "%s at %p: block %d thread %d against block %d thread %d (code %p)", what,
           reinterpret_cast<void*>(address), before.bid, before.tid, simt_cur->bid, simt_cur->tid, code);
  found.emplace_back(text);
}

void touch_word(uintptr_t address, uint8_t mask, bool write, void* code) {
  const simt_lane& me = *simt_cur;
  Cell& c = cells[address >> 2];
  const Access now{me.tid, me.bid, me.bar_epoch, me.warp_epoch, atomics, mask};
  if ((c.written.mask & mask) && !ordered(c.written, me, address))
    race(c.written, write ? "write after write" : "read after write", address, code);
  if (write) {
    for (const Access& r : c.read)
      if ((r.mask & mask) && !ordered(r, me, address)) race(r, "write after read", address, code);
    c.written = now;
    c.read[0] = c.read[1] = Access{};
  } else if (c.read[0].tid < 0 || c.read[0].tid == me.tid || ordered(c.read[0], me, address)) {
    c.read[0] = now;
  } else {
    c.read[1] = now;  // a second reader that nothing orders against the first
  }
}

void touch(void* p, size_t n, bool write, void* code) {
  if (!simt_cur) return;
  uintptr_t at = reinterpret_cast<uintptr_t>(p);
  // A lane's own stack, on a border of 64 KB, is nobody else's.
  if (at - (reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) & ~uintptr_t{0xffff}) < 0x10000) return;
  const uintptr_t end = at + n;
  while (at < end) {
    const uintptr_t word = at & ~uintptr_t{3};
    uint8_t mask = 0;
    for (; at < end && at < word + 4; ++at) mask = static_cast<uint8_t>(mask | 1u << (at & 3));
    touch_word(word, mask, write, code);
  }
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define HOOKS(n)                                                         \
  void __tsan_read##n(void* p) { touch(p, n, false, CALLER); }           \
  void __tsan_write##n(void* p) { touch(p, n, true, CALLER); }           \
  void __tsan_unaligned_read##n(void* p) { touch(p, n, false, CALLER); } \
  void __tsan_unaligned_write##n(void* p) { touch(p, n, true, CALLER); } \
  void __tsan_volatile_read##n(void* p) { touch(p, n, false, CALLER); }  \
  void __tsan_volatile_write##n(void* p) { touch(p, n, true, CALLER); }
#define EXPORT __attribute__((visibility("default")))
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, size_t n) { touch(p, n, false, CALLER); }
void __tsan_write_range(void* p, size_t n) { touch(p, n, true, CALLER); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  touch(const_cast<void*>(from), n, false, CALLER), touch(to, n, true, CALLER);
  return memcpy(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  touch(to, n, true, CALLER);
  return memset(to, value, n);
}
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t* p, uint32_t v, int) {
  ++atomics;
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_load(const volatile uint32_t* p, int) {
  ++atomics;
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
void __tsan_atomic32_store(volatile uint32_t* p, uint32_t v, int) {
  ++atomics;
  __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
void __tsan_atomic64_store(volatile uint64_t* p, uint64_t v, int) {
  ++atomics;
  __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
void __tsan_atomic_thread_fence(int) { ++atomics; }

EXPORT void simt_race_launch(bool (*)(const void*)) {
  cells.clear();
  found.clear();
  atomics = 0;
}
EXPORT int simt_race_count() { return static_cast<int>(found.size()); }
EXPORT const char* simt_race_text(int i) { return found[static_cast<size_t>(i)].c_str(); }
}
