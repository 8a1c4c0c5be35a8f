// The kernel side of the host stand-in for a GPU: what src/backend/gpu/kernels/prelude.cuh needs to compile
// the kernels for the CPU. Included before a kernel source; every lane is a fiber of the scheduler in
// simt_rt.h, which sets simt_cur before a lane runs. SIMT_WARP is the width of a hardware wave, 32 or 64.
#pragma once
#define KP_HOST 1
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef SIMT_WARP
#define SIMT_WARP 32
#endif

/// What the lanes of one wave exchange: two buffers, so that one meeting is enough for an exchange.
struct simt_wave {
  uint32_t slot[2][64];
  uint32_t matrix[2][64][6];  ///< operands of a matrix unit
};

/// Copies into shared memory that a lane has started and not waited for.
struct simt_copies {
  enum { most = 64 };
  int count, closed;  ///< copies, and groups closed so far
  struct {
    void* to;
    const void* from;
    int group;
  } copy[most];
};

/// What a lane can see of itself.
struct simt_lane {
  int tid, lane, bid;
  int turn;  ///< which of the two buffers the next exchange uses
  simt_wave* wave;
  void* dynamic;                   ///< dynamic shared memory of the block
  uint32_t bar_epoch, warp_epoch;  ///< barriers and meetings so far, for the race check
  void (*barrier)();
  void (*meet)();  ///< waits for the lanes of the virtual warp of 32
  simt_copies* copies;
};

/// One kernel of a module.
struct simt_kernel {
  const char* name;
  unsigned args_size;
  void (*call)(const void* args);
};

extern "C" {
__attribute__((visibility("default"))) extern simt_lane* simt_cur;
}

#ifndef SIMT_RUNTIME  // ---- what follows is for kernel sources alone
extern "C" {
__attribute__((visibility("default"))) simt_lane* simt_cur = nullptr;
}
#define __global__
#define __device__
// Shared memory is one section, saved and restored when another block runs.
#define __shared__ static __attribute__((section("simt_lds")))
#define KP_BOUNDS(n)
#define KP_BOUNDS_RESIDENT(n, blocks)
#define KP_METHOD inline __attribute__((always_inline))
#define KP_DEV static KP_METHOD
#define KP_UNROLL
#define KP_DYN_SHARED(T, name) T* name = (T*)simt_cur->dynamic

// One variable, so that the section and the symbols of its ends always exist.
static __attribute__((section("simt_lds"), used)) unsigned char simt_lds_anchor[16];
extern "C" unsigned char __start_simt_lds[], __stop_simt_lds[];
extern "C" __attribute__((visibility("default"))) void simt_lds_range(void** first, size_t* bytes) {
  *first = __start_simt_lds;
  *bytes = (size_t)(__stop_simt_lds - __start_simt_lds);
}
extern "C" __attribute__((visibility("default"))) int simt_warp_size() { return SIMT_WARP; }

KP_DEV int kp_tid() { return simt_cur->tid; }
KP_DEV int kp_bid() { return simt_cur->bid; }
KP_DEV void kp_barrier() { simt_cur->barrier(); }
KP_DEV float kp_as_f32(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
KP_DEV uint32_t kp_as_u32(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
/// Writes this lane's value, meets the others, reads the one of hardware lane `from`.
static __attribute__((noinline, no_sanitize("thread"))) uint32_t simt_exchange(uint32_t v, int from) {
  simt_lane* const me = simt_cur;
  const int turn = me->turn;
  me->turn ^= 1;
  me->wave->slot[turn][me->lane] = v;
  me->meet();
  return me->wave->slot[turn][from & (SIMT_WARP - 1)];
}
KP_DEV uint32_t kp_shfl_xor_u(uint32_t v, int mask) { return simt_exchange(v, simt_cur->lane ^ mask); }
KP_DEV uint32_t kp_shfl_u(uint32_t v, int from) { return simt_exchange(v, (simt_cur->lane & ~31) | from); }
/// Row lane / 4 of an 8 x 8 matrix of 16-bit numbers becomes column lane / 4.
static __attribute__((noinline, no_sanitize("thread"))) uint32_t kp_transpose8(uint32_t v) {
  simt_lane* const me = simt_cur;
  const int turn = me->turn, base = me->lane & ~31, row = (me->lane & 31) / 4, pair = (me->lane & 31) % 4;
  me->turn ^= 1;
  me->wave->slot[turn][me->lane] = v;
  me->meet();
  uint32_t out = 0;
  for (int j = 0; j < 2; ++j) {
    const uint32_t from = me->wave->slot[turn][base + (2 * pair + j) * 4 + row / 2];
    out |= (from >> (row % 2 * 16) & 0xffffu) << 16 * j;
  }
  return out;
}
/// The fragments of mma.m16n8k16 in bf16, summed in the order of the inputs.
static __attribute__((noinline, no_sanitize("thread"))) void simt_multiply_16x8(float* sums, uint32_t x0,
                                                                                uint32_t x1, uint32_t x2,
                                                                                uint32_t x3, uint32_t w0,
                                                                                uint32_t w1) {
  simt_lane* const me = simt_cur;
  const int turn = me->turn, base = me->lane & ~31, group = (me->lane & 31) / 4, pair = (me->lane & 31) % 4;
  me->turn ^= 1;
  uint32_t(*const all)[6] = me->wave->matrix[turn] + base;
  const uint32_t mine[6] = {x0, x1, x2, x3, w0, w1};
  memcpy(all[me->lane - base], mine, sizeof mine);
  me->meet();
  const auto half = [](uint32_t word, int which) {
    return kp_as_f32(which ? word & 0xffff0000u : word << 16);
  };
  for (int i = 0; i < 4; ++i) {
    const int row = group + 8 * (i / 2), column = 2 * pair + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float x = half(all[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)], k % 2);
      const float w = half(all[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
      sums[i] = fmaf(x, w, sums[i]);
    }
  }
}
KP_DEV float kp_fma(float a, float b, float c) { return fmaf(a, b, c); }
KP_DEV float kp_sqrt(float x) { return sqrtf(x); }
KP_DEV double kp_sqrt_d(double x) { return sqrt(x); }
KP_DEV float kp_rint(float x) { return rintf(x); }
KP_DEV double kp_rint_d(double x) { return rint(x); }
KP_DEV double kp_fma_d(double a, double b, double c) { return fma(a, b, c); }
KP_DEV uint32_t kp_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = (uint64_t)y << 32 | x;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) r |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
KP_DEV uint32_t kp_atomic_add(uint32_t* p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
KP_DEV void kp_shared_add(uint32_t* p, uint32_t v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
KP_DEV uint32_t kp_shared_take(uint32_t* p) { return __atomic_fetch_add(p, 1u, __ATOMIC_RELAXED); }
KP_DEV void kp_fence() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
KP_DEV void kp_fence_system() { __atomic_thread_fence(__ATOMIC_RELEASE); }
KP_DEV void kp_store_release_system(int* p, int v) {
  __atomic_store_n((uint32_t*)p, (uint32_t)v, __ATOMIC_RELEASE);
}
KP_DEV int kp_load_acquire_system(const int* p) {
  return (int)__atomic_load_n((const uint32_t*)p, __ATOMIC_ACQUIRE);
}
KP_DEV void kp_store_system(unsigned long long* p, unsigned long long v) {
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
KP_DEV void kp_wait_previous() {}
KP_DEV void kp_launch_dependents() {}
#if defined(SIMT_ASYNC)
#define KP_ASYNC 1
/// The bytes come when they are waited for; until then a NaN pattern is there.
static __attribute__((noinline, no_sanitize("thread"))) void kp_copy_16(void* to, const void* from) {
  simt_copies& c = *simt_cur->copies;
  if (c.count == simt_copies::most) abort();
  const uint32_t pattern[4] = {0x7fc0dead, 0x7fc0dead, 0x7fc0dead, 0x7fc0dead};
  memcpy(to, pattern, 16);
  c.copy[c.count++] = {to, from, c.closed};
}
static __attribute__((noinline, no_sanitize("thread"))) void kp_copies_close() { ++simt_cur->copies->closed; }
static __attribute__((noinline, no_sanitize("thread"))) void simt_copies_wait(int open) {
  simt_copies& c = *simt_cur->copies;
  int kept = 0;
  for (int i = 0; i < c.count; ++i) {
    if (c.copy[i].group < c.closed - open)
      memcpy(c.copy[i].to, c.copy[i].from, 16);
    else
      c.copy[kept++] = c.copy[i];
  }
  c.count = kept;
}
template <int kOpen>
KP_DEV void kp_copies_wait() {
  simt_copies_wait(kOpen);
}
#endif
/// The lanes of a virtual warp see what the others did to shared memory.
KP_DEV void kp_warp_barrier() { simt_cur->meet(); }

/// The kernel table: size of the argument struct and a caller, deduced from the kernel's type.
template <class A>
constexpr unsigned simt_args_size(void (*)(A)) {
  return (unsigned)sizeof(A);
}
template <class A>
inline void simt_call(void (*kernel)(A), const void* args) {
  kernel(*(const A*)args);
}
#define SIMT_KERNEL(name)                                                          \
  {                                                                                \
#name, simt_args_size(&name), [](const void* args) { simt_call(&name, args); } \
  }
#endif
