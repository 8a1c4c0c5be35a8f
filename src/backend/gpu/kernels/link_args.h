// Arguments of the kernels that link host and device (link.cuh). Read as args.h is: by every compiler,
// without headers.
#pragma once
#include "backend/gpu/kernels/args.h"

/// to[r] = from[r], or zeros where `from` is null: `rows` rows of `row_units` units of `unit` bytes (1, 4 or
/// 16), to which both addresses and strides (in bytes) are aligned.
struct LinkRowsArgs {
  const unsigned char* from;
  unsigned char* to;
  kp_u64 from_stride, to_stride;
  kp_u32 rows, row_units, unit;
  kp_u32 blocks;  ///< of the launch
};

/// Everything before it on its queue is done: *host = ++*count, with system-scope release.
struct LinkMarkArgs {
  kp_u32* count;  ///< device memory
  int* host;      ///< coherent host memory
};

/// Reads `units` 16-byte units and stores a word per block, so that the reads are not left out.
struct LinkReadArgs {
  const unsigned char* from;
  kp_u32* to;
  kp_u64 units;
  kp_u32 blocks;
};

enum { kLinkThreads = 256 };
