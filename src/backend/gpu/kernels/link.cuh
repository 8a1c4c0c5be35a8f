// Kernels that link host and device: rows in and out through page-locked memory, and the mark that says how
// far a queue has come. With them the host needs neither copies of the driver nor its completion signals.
#pragma once
#include "backend/gpu/kernels/link_args.h"
#include "backend/gpu/kernels/prelude.cuh"

extern "C" __global__ void KP_BOUNDS(kLinkThreads) link_rows(LinkRowsArgs a) {
  kp_wait_previous();
  const kp_u64 units = (kp_u64)a.rows * a.row_units, step = (kp_u64)a.blocks * kLinkThreads;
  for (kp_u64 i = (kp_u64)kp_bid() * kLinkThreads + (kp_u64)kp_tid(); i < units; i += step) {
    const kp_u64 row = i / a.row_units, at = (i - row * a.row_units) * a.unit;
    const unsigned char* from = a.from ? a.from + row * a.from_stride + at : nullptr;
    unsigned char* to = a.to + row * a.to_stride + at;
    if (a.unit == 16) {
      kp_u32x4 v = {0, 0, 0, 0};
      if (from) v = *(const kp_u32x4*)from;
      *(kp_u32x4*)to = v;
    } else if (a.unit == 4) {
      *(kp_u32*)to = from ? *(const kp_u32*)from : 0u;
    } else {
      *to = from ? *from : (unsigned char)0;
    }
  }
  kp_launch_dependents();
}

extern "C" __global__ void KP_BOUNDS(64) link_mark(LinkMarkArgs a) {
  kp_wait_previous();
  if (kp_tid() != 0) return;
  const kp_u32 count = *a.count + 1;
  *a.count = count;
  kp_store_release_system(a.host, (int)count);
}

extern "C" __global__ void KP_BOUNDS(kLinkThreads) link_read(LinkReadArgs a) {
  kp_wait_previous();
  kp_u32 sum = 0;
  for (kp_u64 i = (kp_u64)kp_bid() * kLinkThreads + (kp_u64)kp_tid(); i < a.units;
       i += (kp_u64)a.blocks * kLinkThreads) {
    const kp_u32x4 v = kp_load_weights(a.from + i * 16);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9e3779b9u) a.to[kp_bid()] = sum;
}
