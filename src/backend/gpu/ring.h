// Frames as the device reports them: entries in coherent host memory, written by publish_frame, polled by the
// host.
#pragma once

#include <span>
#include <vector>

#include "backend/gpu/health.h"
#include "backend/gpu/launch.h"

namespace skald::backend::gpu {

class ReportRing {
 public:
  static constexpr int32_t kMostSlots = 1024, kMostGroups = 56;

  ReportRing(const Context& context, Health& health);

  /// What the kernels are given.
  HostRingArgs args() const;
  /// Memory of the kernels' counters, to be zeroed once.
  const DeviceBlock& beats() const { return beats_; }

  /// Backend::await_report. `queue` tells about the one that publishes.
  FrameReport await(int32_t slot, int32_t run, std::span<int32_t> codes, const Health::Wait& queue);

  /// Sequence number of the last run that a slot reported; any thread.
  int32_t last_run(int32_t slot) const;

 private:
  static constexpr int32_t kStride = kRingCodes + kMostGroups;
  int* entry(int32_t slot, int32_t run) const;

  Health& health_;
  HostBlock entries_;
  DeviceBlock beats_;
};

}  // namespace skald::backend::gpu
