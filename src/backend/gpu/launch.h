// What the ops of the GPU backend become: launches of named kernels, and what building them needs to know of
// a device. Nothing here knows a driver; the same launches run on a GPU and on the host stand-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/gpu/kernels/args.h"
#include "backend/gpu/packing.h"
#include "backend/ops.h"

namespace skald::backend::gpu {

/// One kernel launch. Every kernel is `extern "C" __global__ void NAME(ARGS a)`: one plain struct by value,
/// declared in kernels/args.h. Grid and block are one-dimensional.
struct Launch {
  std::string kernel;
  uint32_t blocks = 1;
  uint32_t threads = 0;         ///< a multiple of 64, at most 1024
  uint32_t dynamic_shared = 0;  ///< bytes, at most 48 KB, with `async_copies` 99 KB
  std::vector<std::byte> args;  ///< the struct's bytes

  template <class Args>
  static Launch make(std::string kernel, int64_t blocks, int threads, const Args& args,
                     size_t dynamic_shared = 0) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= 1024);
    Launch l{std::move(kernel), static_cast<uint32_t>(blocks), static_cast<uint32_t>(threads),
             static_cast<uint32_t>(dynamic_shared), std::vector<std::byte>(sizeof(Args))};
    std::memcpy(l.args.data(), &args, sizeof(Args));
    return l;
  }
};

/// What launches depend on. Warp and compute units change no result.
struct DeviceTraits {
  int warp = 32;              ///< lanes of a warp (wave), 32 or 64
  int compute_units = 64;     ///< multiprocessors
  bool matrix = false;        ///< has the matrix units of kernels/matrix.cuh: many rows by bf16 go there
  bool async_copies = false;  ///< kernels bring weights into shared memory by copies of their own (KP_ASYNC)
};

/// What the ops need of a device while they are recorded. Addresses are those the device sees; they stay
/// valid as long as the device lives. Implemented by the GPU device and by the kernel tests.
class LaunchTarget {
 public:
  virtual ~LaunchTarget() = default;
  virtual const DeviceTraits& traits() const = 0;
  /// Address of a view's first element, after checking that the view lies inside its allocation. Throws
  /// Error(internal) whose message starts with `what`.
  virtual uint64_t address(const Buffer& view, const std::string& what) const = 0;
  virtual const DeviceWeight& weight(Weight weight, const std::string& what) const = 0;
  /// At least `bytes` on a 256-byte border, for launches of one op. Ops of one program run in order and share
  /// it; programs that run beside each other must be given different scratch. Contents are undefined.
  virtual uint64_t scratch(size_t bytes) = 0;
  /// The same, but zeroed once when reserved and shared by nobody else: kernels leave it as zeros.
  virtual uint64_t zeroed(size_t bytes) = 0;
  /// A word in memory that device and host see, zero until a kernel reports a fault (LaneArgs::fault).
  virtual uint64_t fault_word() const = 0;
  /// Where publish_frame reports to the host; all null where nobody listens.
  virtual HostRingArgs host_ring() const = 0;
};

/// A decoded fault word.
struct Fault {
  FaultCode code = kFaultNone;
  uint32_t op = 0;    ///< as given to Recorder
  int32_t value = 0;  ///< see FaultCode
};
Fault decode_fault(uint64_t word);
/// One sentence for a fault, e.g. "a lane names slot 7, which does not exist".
std::string describe(const Fault& fault);

/// One recorded op: its launches run in order.
struct RecordedOp {
  OpRecord record;  ///< kind, label, outputs
  std::vector<Launch> launches;
  uint32_t number = 0;  ///< what fault words call it
};

}  // namespace skald::backend::gpu
