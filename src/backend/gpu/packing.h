// Weights as they lie on the device (docs/decisions/0007-gpu-panels.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/gpu/kernels/args.h"
#include "backend/ops.h"

namespace skald::backend::gpu {

/// A loaded weight. `address` is that of the packed bytes on the device, which the device copies there once.
struct DeviceWeight {
  WeightRole role = WeightRole::vector;
  std::string name;
  ElementKind kind = kElementF32;
  int outputs = 0, inputs = 0;  ///< of one tap: matrices and convolutions
  int taps = 1;                 ///< kernel size of a convolution
  int64_t rows = 0, width = 0;  ///< table: entries, width; vector: 1, n; depthwise: taps, channels
  size_t bytes = 0;
  uint64_t address = 0;
};

/// Shape and bytes of a packed weight, before it has an address.
struct PackedWeight {
  DeviceWeight weight;
  std::vector<std::byte> bytes;
};

}  // namespace skald::backend::gpu
