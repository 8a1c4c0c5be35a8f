// Recorded programs, and the kernels that their launches name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/gpu/code/provider.h"
#include "backend/gpu/driver/handles.h"
#include "backend/gpu/health.h"
#include "backend/gpu/launch.h"

namespace skald::backend::gpu {

/// The loaded code of a device.
class Kernels {
 public:
  /// Throws Error(device_code) when an image is not for this device.
  Kernels(const Context& context, const std::vector<DeviceCode>& code, std::string architecture);

  /// A kernel that is ready for so much dynamic shared memory. Throws Error(device_function) when no module
  /// has it.
  FunctionHandle find(const std::string& name, uint32_t dynamic_shared) const;
  /// One launch on a stream. `overlap`: it may start before the one ahead of it has ended (programmatic
  /// dependent launch), as all our kernels wait for that themselves.
  Status launch(const Launch& launch, StreamHandle stream, bool overlap) const;
  bool can_overlap() const { return can_overlap_; }

 private:
  const Context& context_;
  std::string architecture_;
  struct Loaded {
    std::string name;
    Module module;
  };
  std::vector<Loaded> modules_;
  struct Found {
    FunctionHandle function = nullptr;
    uint32_t shared = kSharedOfAll;  ///< dynamic, bytes that it may have
  };
  static constexpr uint32_t kSharedOfAll = 48 << 10;
  Found& look_up(const std::string& name) const;

  mutable std::map<std::string, Found> found_;
  bool can_overlap_;
};

struct RecordedProgram {
  std::string name;
  Queue queue = Queue::frames;
  std::vector<RecordedOp> ops;
  std::vector<OpRecord> records;
  std::vector<Launch> launches;  ///< of the whole program, the queue's mark last
  GraphExec graph;               ///< absent where the driver cannot capture
};

/// Captures launches into a graph. Returns an empty one when the driver does not support that; throws for
/// other errors.
GraphExec capture(const Context& context, Health& health, const Kernels& kernels, StreamHandle stream,
                  const std::vector<Launch>& launches);

}  // namespace skald::backend::gpu
