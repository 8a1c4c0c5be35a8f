// Arguments of the GPU kernels: plain structs that the host (C++20) fills and every device compiler reads.
//
// No header is needed and none may be included: NVRTC, HIPRTC and offline clang compile this file as it is.
// Pointers hold 64-bit device addresses. Strides are in elements. A null pointer means "absent".
#pragma once

typedef unsigned char kp_u8;
typedef signed char kp_i8;
typedef unsigned short kp_u16;
typedef unsigned int kp_u32;
typedef unsigned long long kp_u64;
typedef long long kp_i64;

/// Why an op could not be carried out; reported through the fault word, see LaneArgs.
enum FaultCode {
  kFaultNone = 0,
  kFaultSlot = 1,      ///< a lane names a slot that does not exist; value = slot
  kFaultCount = 2,     ///< a lane counts more rows than it has, or fewer than none; value = rows
  kFaultPosition = 3,  ///< a position outside the cache or store; value = position
  kFaultId = 4,        ///< an id outside its table, or a forced code outside the logits; value = id
  kFaultStored = 5,    ///< a step outside the stored rows; value = step
  kFaultNoise = 6,     ///< recorded noise asked for where there is none; value = slot
};

/// Which rows of the op count in this run: `Lanes` of ops.h.
struct LaneArgs {
  const int* slot;   ///< [lanes]
  const int* count;  ///< [lanes], or absent
  const int* start;  ///< [slots], or absent
  const int* gate;   ///< [slots], or absent
  int slot_stride, count_stride, start_stride, gate_stride;
  int lanes, rows, rate, start_offset;
  int slots;  ///< slots that every array of the op has; one at or beyond it is a fault
  int op;     ///< number of the op, for the fault word
  /// One word, 0 = all is well. A kernel that meets values it cannot work with stores
  /// code << 56 | op << 32 | value and leaves that lane (or row) alone. The last report wins.
  kp_u64* fault;
};

/// How the elements of a packed matrix or of a table are stored.
enum ElementKind { kElementF32 = 0, kElementBf16 = 1, kElementInt8 = 2, kElementF16 = 3 };

/// Where a run of publish_frame reports to the host. Entry e of a slot is `stride` ints at
/// entries + (slot * depth + e) * stride:
/// [sequence, status, frames, position, sampled, step, 0, 0, codes of the frame in work ...].
/// `beat` counts the runs that had the slot in a lane, whatever its status was; run n (from 1) goes to entry
/// (n - 1) % depth and its sequence number n is stored last, with system-scope release. `entries` is coherent
/// host memory, `beat` device memory.
struct HostRingArgs {
  int* entries;
  int* beat;  ///< [slots]
  int depth, stride, slots;
};
enum { kRingSequence, kRingStatus, kRingFrames, kRingPosition, kRingSampled, kRingStep, kRingCodes = 8 };
