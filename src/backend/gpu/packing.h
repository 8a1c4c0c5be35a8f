// Weights as they lie on the device (docs/decisions/0007-gpu-panels.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/checks.h"
#include "backend/gpu/kernels/args.h"
#include "backend/tensors.h"
#include "base/pool.h"

namespace skald::backend::gpu {

/// Outputs of one panel; outputs are padded to whole panels with zeros.
constexpr int kPanelOutputs = 8;

/// Inputs of one group of a panel: 32 lanes by one input, int8 by two.
constexpr int group_inputs(ElementKind kind) { return kind == kElementInt8 ? 64 : 32; }
/// Bytes of one group, without scales.
constexpr int group_bytes(ElementKind kind) { return kind == kElementF32 ? 1024 : 512; }

/// A matrix or convolution in panels; all kernel positions of a convolution are stored as one run of `kernel`
/// blocks of groups within a panel.
struct PanelLayout {
  ElementKind kind = kElementF32;
  int outputs = 0, inputs = 0, taps = 1;

  int panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  int groups() const { return (inputs + group_inputs(kind) - 1) / group_inputs(kind); }  ///< of one tap
  int64_t tap_bytes() const { return int64_t{groups()} * group_bytes(kind); }
  int64_t scale_bytes() const { return taps * tap_bytes(); }  ///< where the scales of a panel begin
  int64_t panel_bytes() const {
    return scale_bytes() + (kind == kElementInt8 ? int64_t{groups()} * kPanelOutputs * 4 : 0);
  }
  int64_t bytes() const { return panels() * panel_bytes(); }
};

/// A loaded weight. `address` is that of the packed bytes on the device, on a 256-byte border.
struct DeviceWeight : WeightShape {
  ElementKind kind = kElementF32;
  size_t bytes = 0;
  uint64_t address = 0;

  PanelLayout layout() const { return {kind, outputs, inputs, taps}; }
};

/// Shape and bytes of a weight before it has an address. Tables are used as they are in the file: `bytes` is
/// then empty and `source` names them.
struct PackedWeight {
  DeviceWeight weight;
  std::vector<std::byte> bytes;
  std::span<const std::byte> source;
  std::span<const std::byte> data() const { return bytes.empty() ? source : bytes; }
};

/// Packs a tensor for its role, with all threads. Throws Error(model_invalid) naming the tensor when rank,
/// type or size do not fit.
PackedWeight pack_weight(WeightRole role, const TensorSource& source, WeightPrecision precision, Pool& pool);

}  // namespace skald::backend::gpu
