// The one file that knows which GPU compiler it is under: clang or HIPRTC for AMD, NVRTC for NVIDIA, or a
// host compiler with the test stand-in (tests/standin/simt/simt.h, included before this). No vendor header is
// used.
//
// Kernels are written for virtual warps of 32 lanes (kp_lane, kp_warp); exchanges stay inside one, so
// hardware waves of 32 and of 64 lanes give the same bits. Exchanges and barriers stand in uniform code only.
// Compile without contraction (NVRTC --fmad=false, clang -ffp-contract=off): every multiply-add is a kp_fma.
#pragma once
#include "backend/gpu/kernels/args.h"

#if defined(KP_HOST)
// simt.h has defined everything vendor-specific.
#elif defined(__AMDGCN__) || defined(__HIP__)
#define KP_AMD 1
#elif defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define KP_NV 1
#else
#error "prelude.cuh: unknown compiler"
#endif

/// The unit of wide loads.
struct alignas(16) kp_u32x4 {
  kp_u32 x, y, z, w;
};

#if defined(KP_HOST)
KP_DEV kp_u32x4 kp_load_weights(const void* p) { return *(const kp_u32x4*)p; }
KP_DEV void kp_multiply_16x8(float* sums, const kp_u32x4& x, kp_u32 w0, kp_u32 w1) {
  simt_multiply_16x8(sums, x.x, x.y, x.z, x.w, w0, w1);
}
#define KP_MATRIX 1
#endif

// ---------------------------------------------------------------- AMD
#if defined(KP_AMD)
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
#define KP_BOUNDS(n) __attribute__((amdgpu_flat_work_group_size(64, n)))
#define KP_BOUNDS_RESIDENT(n, blocks) KP_BOUNDS(n)
#define KP_METHOD __attribute__((device)) inline __attribute__((always_inline))
#define KP_DEV static KP_METHOD
#define KP_UNROLL _Pragma("unroll")
#define KP_DYN_SHARED(T, name)                                                        \
  extern __attribute__((shared)) __attribute__((aligned(16))) unsigned char kp_dyn[]; \
  T* name = (T*)kp_dyn
KP_DEV int kp_tid() { return (int)__builtin_amdgcn_workitem_id_x(); }
KP_DEV int kp_bid() { return (int)__builtin_amdgcn_workgroup_id_x(); }
KP_DEV void kp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/// The lanes of a virtual warp see what the others did to shared memory: they run in step.
KP_DEV void kp_warp_barrier() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"); }
KP_DEV float kp_as_f32(kp_u32 u) { return __builtin_bit_cast(float, u); }
KP_DEV kp_u32 kp_as_u32(float f) { return __builtin_bit_cast(kp_u32, f); }
/// Lane of the hardware wave.
KP_DEV int kp_hardware_lane() {
#if defined(__GFX9__)
  return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
  return (int)__builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}
// Never permlane: LLVM before 21 may sink it into a following `if (lane == 0)`, where half of the wave is
// off.
KP_DEV kp_u32 kp_shfl_xor_u(kp_u32 v, int mask) {
  return (kp_u32)__builtin_amdgcn_ds_bpermute((kp_hardware_lane() ^ mask) << 2, (int)v);
}
/// The value of lane `from` of the virtual warp.
KP_DEV kp_u32 kp_shfl_u(kp_u32 v, int from) {
  return (kp_u32)__builtin_amdgcn_ds_bpermute(((kp_hardware_lane() & ~31) | from) << 2, (int)v);
}
KP_DEV float kp_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
KP_DEV float kp_sqrt(float x) { return __builtin_sqrtf(x); }
KP_DEV double kp_sqrt_d(double x) { return __builtin_sqrt(x); }
KP_DEV float kp_rint(float x) { return __builtin_rintf(x); }
KP_DEV double kp_rint_d(double x) { return __builtin_rint(x); }
KP_DEV double kp_fma_d(double a, double b, double c) { return __builtin_fma(a, b, c); }
/// Byte i of the result is byte (selector >> 4 i & 7) of the eight bytes x, y.
KP_DEV kp_u32 kp_bytes(kp_u32 x, kp_u32 y, kp_u32 selector) {
  const kp_u32 wide =
      (selector & 7u) | (selector & 0x70u) << 4 | (selector & 0x700u) << 8 | (selector & 0x7000u) << 12;
  return __builtin_amdgcn_perm(y, x, wide);
}
KP_DEV kp_u32x4 kp_load_weights(const void* p) { return *(const kp_u32x4*)p; }
KP_DEV kp_u32 kp_atomic_add(kp_u32* p, kp_u32 v) {
  return __hip_atomic_fetch_add(p, v, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
KP_DEV void kp_shared_add(kp_u32* p, kp_u32 v) {
  (void)__hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
/// Adds 1 and returns what was there.
KP_DEV kp_u32 kp_shared_take(kp_u32* p) {
  return __hip_atomic_fetch_add(p, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
KP_DEV void kp_fence() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); }
KP_DEV void kp_fence_system() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, ""); }
KP_DEV void kp_store_release_system(int* p, int v) {
  __hip_atomic_store(p, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
KP_DEV int kp_load_acquire_system(const int* p) {
  return __hip_atomic_load(p, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
KP_DEV void kp_store_system(kp_u64* p, kp_u64 v) {
  __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
KP_DEV void kp_wait_previous() {}
KP_DEV void kp_launch_dependents() {}

// ---------------------------------------------------------------- NVIDIA
#elif defined(KP_NV)
#define KP_BOUNDS(n) __launch_bounds__(n, 1)
/// Registers for so many blocks at once: all blocks of a launch must have started before the next one may.
#if __CUDA_ARCH__ >= 800
#define KP_BOUNDS_RESIDENT(n, blocks) __launch_bounds__(n, blocks)
#else
#define KP_BOUNDS_RESIDENT(n, blocks) __launch_bounds__(n, 1)
#endif
#define KP_METHOD __device__ __forceinline__
#define KP_DEV static KP_METHOD
#define KP_UNROLL _Pragma("unroll")
#define KP_DYN_SHARED(T, name)                            \
  extern __shared__ __align__(16) unsigned char kp_dyn[]; \
  T* name = (T*)kp_dyn
KP_DEV int kp_tid() { return (int)threadIdx.x; }
KP_DEV int kp_bid() { return (int)blockIdx.x; }
KP_DEV void kp_barrier() { __syncthreads(); }
/// The lanes of a virtual warp see what the others did to shared memory.
KP_DEV void kp_warp_barrier() { __syncwarp(); }
KP_DEV float kp_as_f32(kp_u32 u) { return __uint_as_float(u); }
KP_DEV kp_u32 kp_as_u32(float f) { return __float_as_uint(f); }
KP_DEV kp_u32 kp_shfl_xor_u(kp_u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
KP_DEV kp_u32 kp_shfl_u(kp_u32 v, int from) { return __shfl_sync(0xffffffffu, v, from); }
KP_DEV float kp_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KP_DEV float kp_sqrt(float x) { return __fsqrt_rn(x); }
KP_DEV double kp_sqrt_d(double x) { return __dsqrt_rn(x); }
KP_DEV float kp_rint(float x) { return rintf(x); }
KP_DEV double kp_rint_d(double x) { return rint(x); }
KP_DEV double kp_fma_d(double a, double b, double c) { return __fma_rn(a, b, c); }
KP_DEV kp_u32 kp_bytes(kp_u32 x, kp_u32 y, kp_u32 selector) { return __byte_perm(x, y, selector); }
/// Weights are read once a pass: they stay out of the first-level cache.
KP_DEV kp_u32x4 kp_load_weights(const void* p) {
  kp_u32x4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
KP_DEV kp_u32 kp_atomic_add(kp_u32* p, kp_u32 v) {
  kp_u32 old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}
KP_DEV void kp_shared_add(kp_u32* p, kp_u32 v) { atomicAdd(p, v); }
KP_DEV kp_u32 kp_shared_take(kp_u32* p) { return atomicAdd(p, 1u); }
KP_DEV void kp_fence() { __threadfence(); }
KP_DEV void kp_fence_system() { __threadfence_system(); }
KP_DEV void kp_store_release_system(int* p, int v) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
KP_DEV int kp_load_acquire_system(const int* p) {
  int v;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
KP_DEV void kp_store_system(kp_u64* p, kp_u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
#if __CUDA_ARCH__ >= 800
#define KP_ASYNC 1
/// Starts to bring 16 bytes into shared memory. What was started is a group once it is closed.
KP_DEV void kp_copy_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((kp_u32)__cvta_generic_to_shared(to)),
               "l"(from)
               : "memory");
}
KP_DEV void kp_copies_close() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for this lane's groups, save the last kOpen.
template <int kOpen>
KP_DEV void kp_copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}
#define KP_MATRIX 1
/// An 8 x 8 matrix of 16-bit numbers, two neighbours of a row a lane (row lane / 4), turned.
KP_DEV kp_u32 kp_transpose8(kp_u32 v) {
  kp_u32 turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(v));
  return turned;
}
/// sums (16 x 8) += x (16 x 16) * weights (16 x 8), bf16, in the fragments of mma.m16n8k16.
KP_DEV void kp_multiply_16x8(float* sums, const kp_u32x4& x, kp_u32 w0, kp_u32 w1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(w0), "r"(w1));
}
#endif
/// With programmatic dependent launch a kernel may start before the one ahead of it has ended. What stands
/// before kp_wait_previous() may touch weights alone. Without that attribute both are nothing.
KP_DEV void kp_wait_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
KP_DEV void kp_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

// ---------------------------------------------------------------- common
KP_DEV int kp_lane() { return kp_tid() & 31; }
KP_DEV int kp_warp() { return kp_tid() >> 5; }
KP_DEV float kp_shfl_xor(float v, int mask) { return kp_as_f32(kp_shfl_xor_u(kp_as_u32(v), mask)); }
KP_DEV float kp_max(float a, float b) { return a > b ? a : b; }
KP_DEV float kp_abs(float x) { return kp_as_f32(kp_as_u32(x) & 0x7fffffffu); }
KP_DEV float kp_infinity() { return kp_as_f32(0x7f800000u); }
KP_DEV int kp_min_i(int a, int b) { return a < b ? a : b; }
KP_DEV int kp_max_i(int a, int b) { return a > b ? a : b; }

/// Sum and largest of the 32 lanes, in every lane. The order of the sum is that of all exchanges: 16, 8, 4,
/// 2, 1.
KP_DEV float kp_sum32(float v) {
  KP_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v += kp_shfl_xor(v, mask);
  return v;
}
KP_DEV float kp_max32(float v) {
  KP_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v = kp_max(v, kp_shfl_xor(v, mask));
  return v;
}

KP_DEV float kp_bf16_low(kp_u32 pair) { return kp_as_f32(pair << 16); }
KP_DEV float kp_bf16_high(kp_u32 pair) { return kp_as_f32(pair & 0xffff0000u); }
KP_DEV float kp_f16(kp_u32 half) {
  const kp_u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 0x3ffu;
  if (exponent == 31) return kp_as_f32(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return kp_as_f32(sign | kp_as_u32((float)mantissa * 5.9604644775390625e-8f));
  return kp_as_f32(sign | (exponent + 112) << 23 | mantissa << 13);
}
