// The SIMD kernels of the CPU backend: one table of plain functions per instruction set.
//
// Order of operations. Each output element of a product has its own accumulator that walks the input index
// upwards in blocks of at most kBlockInputs (kScaleInputs for int8 weights); block sums are added in order.
// Sums over a row (norms, dot products) use 16 accumulators, element i in accumulator i % 16, folded in
// halves. Neither depends on the width of a vector, the number of rows or the thread. Targets with fused
// multiply-add (AVX2, AVX3, NEON) therefore give the same bits; SSE and scalar code round the product of a
// multiply-add separately and agree with each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "backend/tensors.h"

namespace skald::backend::cpu {

constexpr int kPanel = 16;         ///< output columns of one weight panel
constexpr int kGroup = 4;          ///< panels of one call of `product`
constexpr int kBlockInputs = 256;  ///< inputs summed before the block sum is added to the total

// How the weights of a panel are stored: in every packing the 16 weights of an input lie side by side.
// int8: runs of kScaleInputs inputs, each led by the 16 float scales of its outputs; weight = scale * int8.
// The sum of a run is scaled and added to the total, so its order is fixed like that of a block.

/// Bytes from the start of a panel to the weights of input `input` (for int8 a multiple of kScaleInputs: to
/// its scales).
constexpr int64_t panel_bytes(Packing packing, int64_t input) {
  if (packing == Packing::int8)
    return (input + kScaleInputs - 1) / kScaleInputs * int64_t{kPanel * sizeof(float)} + input * kPanel;
  return input * kPanel * (packing == Packing::bf16 ? 2 : 4);
}

/// Panels side by side: the columns of one call of `product`.
struct Panels {
  Packing packing = Packing::f32;
  const std::byte* first = nullptr;
  int64_t stride = 0;  ///< bytes from one panel to the next
  int count = 0;       ///< at most kGroup
};

/// A run of consecutive inputs of a product: `offset` floats after the row pointer, its weights `weights`
/// elements after the start of the panel. `ends_block` adds the accumulators to the total.
struct Segment {
  int64_t offset = 0;
  int64_t weights = 0;
  int32_t length = 0;
  bool ends_block = true;
};

/// What happens to a product before it is stored: out = residual + scale * activation(sum + bias), then
/// clipped.
struct Epilogue {
  const float* bias = nullptr;   ///< per column, or absent
  const float* scale = nullptr;  ///< per column, or absent
  Activation activation = Activation::none;
  float clip = 0;  ///< > 0: limits to +-clip
};

/// Rotation and normalisation of the heads of one projection.
struct HeadShape {
  int head_dim = 0;
  const float* norm = nullptr;  ///< [head_dim], or absent
  float epsilon = 0;
  const float* rope = nullptr;  ///< [cos half, sin half] of this row
};

/// One query row against the cached keys and values of one kv head; a key of position p is row p % capacity.
struct AttendArgs {
  const float* q = nullptr;  ///< [group][head_dim], the query heads of this kv head
  const float* k = nullptr;  ///< row 0 of the slot at this head
  const float* v = nullptr;
  int64_t k_stride = 0, v_stride = 0;
  int group = 1, head_dim = 0;
  int64_t first = 0, last = 0;  ///< positions, both included
  int64_t capacity = 0;
  float scale = 1;
  float* scores = nullptr;  ///< scratch, group * attend_scores(last - first + 1)
  float* out = nullptr;     ///< [group][head_dim]
};

/// Floats of score scratch for one query head over `keys` keys.
constexpr int64_t attend_scores(int64_t keys) { return (keys + kPanel - 1) / kPanel * kPanel; }

struct Kernels {
  int64_t target = 0;  ///< Highway's bit

  /// sums[m][panels.count * 16] = rows[m] . panel columns. Only float32 panels may have blocks of more than
  /// one segment.
  void (*product)(const float* const* rows, int m, const Segment* segments, int segment_count,
                  const Panels& panels, float* sums);
  /// Stores columns [0, columns) of `sums` (row stride `stride`) through the epilogue. All pointers are at
  /// the first column; `residual` may be null.
  void (*finish)(const float* sums, int64_t stride, int m, int columns, const Epilogue& epilogue,
                 const float* const* residual, float* const* out);
  /// out[m][c] = silu(gate[m][c]) * up[m][c].
  void (*gate)(const float* gate, const float* up, int64_t stride, int m, int columns, float* const* out);
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int n, float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon, int n,
                     float* out);
  /// Optional RMS norm, then the half-split rotation, of one head. `out` may be `x`.
  void (*rotate)(const float* x, const HeadShape& shape, float* out);
  void (*attend)(const AttendArgs& args);
  /// out = x + inverse_beta * sin^2(alpha * x); `out` is not `x`.
  void (*snake)(const float* x, const float* alpha, const float* inverse_beta, int n, float* out);
  /// out[c] = bias[c] + sum over taps of weight[tap][c] * rows[tap][c]; bias may be null.
  void (*depthwise)(const float* const* rows, const float* weight, const float* bias, int taps, int channels,
                    float* out);
  /// ELU of every element.
  void (*elu)(const float* x, int n, float* out);
  /// out = residual + x * scale; residual may be null, `out` may be any of the inputs.
  void (*scale_add)(const float* x, const float* scale, const float* residual, int n, float* out);
  /// out[i] += x[i].
  void (*add)(const float* x, int n, float* out);

  // Yardsticks of `measure_speed`; the results only keep the compiler honest.
  /// Some sum of x[0..n), n a multiple of 64, read as four streams.
  int32_t (*read_stream)(const int32_t* x, int64_t n);
  /// rounds * 12 independent multiply-adds of one vector each; returns the floating point operations done.
  double (*multiply_add)(int64_t rounds, float* sink);
};

/// The kernels of one target by name, "" for the best this machine has; null when the name is unknown or not
/// usable.
const Kernels* find_kernels(const std::string& target);

/// Name of a table's target, as find_kernels() takes it.
std::string target_name(const Kernels& kernels);

/// Tables usable on this machine, best first.
std::vector<const Kernels*> usable_kernels();

}  // namespace skald::backend::cpu
