// The SIMD kernels of the CPU backend: one table of plain functions per instruction set.
//
// Order of operations. Each output element of a product has its own accumulator that walks the input index
// upwards in blocks of at most kBlockInputs (kScaleInputs for int8 weights and their pairs,
// kPairBlock for other pairs of integers); block sums are added in order. Sums over a row (norms, dot
// products) use 16 accumulators, element i in accumulator i % 16, folded in halves. Neither depends on the
// width of a vector, the number of rows or the thread. Targets with fused multiply-add (AVX2, AVX3, NEON)
// therefore give the same bits; SSE and scalar code round the product of a multiply-add separately and agree
// with each other.
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

constexpr int kPairBlock = 128;  ///< inputs of one integer sum, which share a scale in a row

// A block of integers is scaled to this length (the root of its sum of squares). Rounding adds at most half
// the root of kPairBlock, which leaves it below 2^15.5: the product of two blocks stays within 32 bits.
constexpr float kPairLength = 46300;
constexpr float kMostPair = 32767;
constexpr float kLeastPair = 1e-15f;  ///< smaller values count as zero; their squares would not be normal

/// How the weights of a panel are stored.
/// f32, bf16, int8: the 16 weights of an input lie side by side; rows are floats. int8: runs of kScaleInputs
/// inputs, each led by the 16 float scales of its outputs; weight = scale * int8. The sum of a run is scaled
/// and added to the total, so its order is fixed like that of a block.
/// pairs16, pairs8: integers, for each output those of two inputs side by side: [pair][16][2]; rows are
/// quantised (docs/decisions/0010). pairs16: led by the 16 scales of its outputs, which hold for all taps.
/// pairs8: runs as in int8.
enum class Layout : uint8_t { f32, bf16, int8, pairs16, pairs8 };

constexpr bool is_pairs(Layout layout) { return layout >= Layout::pairs16; }

/// Inputs of one tap, filled up to whole pairs where weights are pairs.
constexpr int64_t held_inputs(Layout layout, int64_t inputs) {
  return is_pairs(layout) ? (inputs + 1) / 2 * 2 : inputs;
}

/// Bytes from the start of a panel to the weights of input `input` (with a scale for each run a multiple of
/// kScaleInputs: to the scales).
constexpr int64_t panel_bytes(Layout layout, int64_t input) {
  constexpr int64_t kScales = kPanel * sizeof(float);
  switch (layout) {
    case Layout::int8:
    case Layout::pairs8: return (input + kScaleInputs - 1) / kScaleInputs * kScales + input * kPanel;
    case Layout::pairs16: return kScales + input * kPanel * 2;
    case Layout::bf16: return input * kPanel * 2;
    case Layout::f32: break;
  }
  return input * kPanel * 4;
}

/// Floats that a row of a product takes. A quantised row is blocks of kPairBlock inputs: a float scale, then
/// the block's 16-bit integers, an odd last one followed by 0.
constexpr int64_t row_words(Layout layout, int64_t inputs) {
  if (!is_pairs(layout)) return inputs;
  return (inputs + kPairBlock - 1) / kPairBlock + (inputs + 1) / 2;
}

/// Panels side by side: the columns of one call of `product`.
struct Panels {
  Layout layout = Layout::f32;
  const std::byte* first = nullptr;
  int64_t stride = 0;  ///< bytes from one panel to the next
  int count = 0;       ///< at most kGroup
};

/// A run of consecutive inputs of a product: `offset` floats after the row pointer, its weights `weights`
/// elements after those of input 0. `ends_block` adds the accumulators to the total; a run of pairs is one
/// block of its row and ends it.
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
  bool vnni = false;   ///< pairs of 16-bit integers by AVX512_VNNI; the same bits

  /// sums[m][panels.count * 16] = rows[m] . panel columns. Only float32 panels may have blocks of more than
  /// one segment.
  void (*product)(const float* const* rows, int m, const Segment* segments, int segment_count,
                  const Panels& panels, float* sums);
  /// The same for pairs: quantised rows. An AMX kernel would take this place.
  void (*pair_product)(const float* const* rows, int m, const Segment* segments, int segment_count,
                       const Panels& panels, float* sums);
  /// Quantises a row of n floats to row_words(pairs16, n) words. A block whose sum of squares is not finite
  /// gets a NaN scale: values that are not, or are above 1e18; one of values below 1e-15 counts as zero.
  void (*quantise)(const float* x, int n, float* words);
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

/// `product` or `pair_product`, as the panels are.
inline void multiply(const Kernels& kernels, const float* const* rows, int m,
                     const std::vector<Segment>& segments, const Panels& panels, float* sums) {
  const auto product = is_pairs(panels.layout) ? kernels.pair_product : kernels.product;
  product(rows, m, segments.data(), static_cast<int>(segments.size()), panels, sums);
}

/// The kernels of one target by name, "" for the best this machine has; null when the name is unknown or not
/// usable.
const Kernels* find_kernels(const std::string& target);

/// Name of a table's target, as find_kernels() takes it.
std::string target_name(const Kernels& kernels);

/// Tables usable on this machine, best first.
std::vector<const Kernels*> usable_kernels();

}  // namespace skald::backend::cpu
