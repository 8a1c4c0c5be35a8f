// Loaded weights: packed matrices, small vectors, tables that stay in the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/ops.h"
#include "base/pool.h"

namespace skald::backend::cpu {

/// What products are made of: floats, or pairs of integers where the model lets values be rounded (`fast`:
/// all matrices and convolutions but those it wants exact).
enum class Compute : uint8_t { exact, fast };

/// "exact" or "fast"; anything else is Error(invalid_argument) that lists them.
Compute parse_compute(std::string_view name);

/// The layout of one tensor's panels. Throws as choose_packing().
Layout choose_layout(WeightPrecision wanted, Compute compute, WeightRole role, const TensorSource& source);

/// A matrix as panels of 16 outputs, each panel a contiguous stream [taps * inputs][16] that starts on a
/// 64-byte border. Outputs come in `groups` equal runs (one per kernel index of a transposed convolution),
/// each padded with zeros to whole panels. How elements are stored is private to packing and the product
/// kernels.
struct PackedMatrix {
  Layout layout = Layout::f32;
  int outputs = 0;  ///< of one group
  int inputs = 0;   ///< of one tap
  int taps = 1;
  int groups = 1;
  std::byte* data = nullptr;  ///< owned by the arena
  size_t size = 0;

  int panels() const { return (outputs + kPanel - 1) / kPanel; }  ///< of one group
  int64_t panel_stride() const {                                  ///< in bytes
    return (panel_bytes(layout, taps * held_inputs(layout, inputs)) + 63) / 64 * 64;
  }
  int64_t group_stride() const { return panels() * panel_stride(); }  ///< in bytes
  std::byte* panel(int group, int index) const {
    return data + group * group_stride() + index * panel_stride();
  }
  /// `count` panels of a group from `index` on.
  Panels panels_from(int group, int index, int count) const {
    return {layout, panel(group, index), panel_stride(), count};
  }
  /// Elements from one tap to the next, and from one group to the next, as Segment::weights counts them.
  int64_t tap_elements() const { return held_inputs(layout, inputs) * kPanel; }
  int64_t group_elements() const { return group_stride() / (is_pairs(layout) ? 2 : 4); }
};

struct LoadedWeight : WeightShape {
  PackedMatrix packed;        ///< matrix, convolution, transposed convolution
  std::vector<float> values;  ///< vector [n]; depthwise [taps][channels]
  Dtype table_type = Dtype::f32;
  std::span<const std::byte> table;  ///< table: the source's bytes

  size_t bytes() const { return packed.size + values.size() * sizeof(float); }
};

/// Packs a tensor for its role, with all threads. Throws Error(model_invalid) naming the tensor when rank,
/// type or size do not fit.
LoadedWeight load_weight(WeightRole role, const TensorSource& source, Layout layout, Pool& pool,
                         Arena& arena);

/// out[i] (+)= row `index` of a table.
void read_table_row(const LoadedWeight& table, int64_t index, bool add, float* out);

/// Splits `taps` runs of the matrix's inputs into segments and blocks: blocks hold at most kBlockInputs
/// inputs, whole taps where a tap is shorter; with pairs each block of a row is a block. Tap t starts
/// t * tap_offset floats after the row pointer, its weights t * tap_weights after the panel pointer. The
/// split depends on nothing else, so it fixes the order of summation.
std::vector<Segment> plan_segments(const PackedMatrix& matrix, int taps, int64_t tap_offset,
                                   int64_t tap_weights);

}  // namespace skald::backend::cpu
