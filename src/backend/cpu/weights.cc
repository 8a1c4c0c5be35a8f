// Packing of checkpoint tensors.
#include "backend/cpu/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

/// Where the elements of a source tensor are: [outputs][inputs][kernel], or [inputs][outputs][kernel] if
/// transposed. The kernel index is the tap, or the group where there is more than one.
struct PackShape {
  int outputs = 0, inputs = 0, taps = 1, groups = 1;
  bool transposed = false;
};

/// Fills one panel of every group: the outputs [16 * panel, 16 * panel + 16).
void pack_panel(const TensorSource& source, const PackShape& s, const PackedMatrix& m, int panel,
                std::vector<float>& run) {
  const int kernel = s.taps * s.groups;
  const int64_t kernel_stride =
      s.groups > 1 ? m.group_stride() / static_cast<int64_t>(sizeof(float)) : int64_t{s.inputs} * kPanel;
  const auto element = static_cast<int64_t>(dtype_size(source.dtype));
  auto* const to = reinterpret_cast<float*>(m.panel(0, panel));
  const int first = panel * kPanel, columns = std::min(kPanel, s.outputs - first);
  // A run is what lies together in the source: all inputs of one output, or these outputs of one input.
  const int64_t length = int64_t{s.transposed ? columns : s.inputs} * kernel;
  run.resize(static_cast<size_t>(length));
  for (int64_t outer = 0; outer < (s.transposed ? s.inputs : columns); ++outer) {
    const int64_t start = s.transposed ? (outer * s.outputs + first) * kernel : (first + outer) * length;
    to_float(source.dtype, source.data.data() + start * element, length, run.data());
    const int64_t inner_stride = s.transposed ? 1 : kPanel, outer_stride = s.transposed ? kPanel : 1;
    for (int64_t i = 0, inner = 0; i < length; ++inner)
      for (int64_t j = 0; j < kernel; ++j, ++i)
        to[j * kernel_stride + inner * inner_stride + outer * outer_stride] = run[static_cast<size_t>(i)];
  }
}

/// Fills one panel of a plain matrix with rounded weights: the outputs [16 * panel, 16 * panel + 16).
template <class Store>
void pack_rounded(const TensorSource& source, const PackedMatrix& m, int panel, std::vector<float>& run,
                  Store&& store) {
  const int first = panel * kPanel, columns = std::min(kPanel, m.outputs - first);
  const int64_t row = m.inputs * static_cast<int64_t>(dtype_size(source.dtype));
  run.resize(static_cast<size_t>(m.inputs));
  for (int c = 0; c < columns; ++c) {
    to_float(source.dtype, source.data.data() + (first + c) * row, m.inputs, run.data());
    store(run.data(), c, m.panel(0, panel));
  }
}

void store_bf16(const float* row, int inputs, int column, std::byte* panel) {
  auto* const to = reinterpret_cast<uint16_t*>(panel) + column;
  for (int k = 0; k < inputs; ++k) to[int64_t{k} * kPanel] = to_bf16(row[k]);
}

void store_int8(const float* row, int inputs, int column, std::byte* panel) {
  for (int first = 0; first < inputs; first += kScaleInputs) {
    std::byte* const run = panel + panel_bytes(Layout::int8, first);
    auto* const to = reinterpret_cast<int8_t*>(run + kPanel * sizeof(float)) + column;
    reinterpret_cast<float*>(run)[column] =
        quantise_run(row + first, std::min(kScaleInputs, inputs - first),
                     [to](int k, int8_t value) { to[k * kPanel] = value; });
  }
}

void store_pairs8(const float* row, int inputs, int column, std::byte* panel) {
  for (int first = 0; first < inputs; first += kScaleInputs) {
    std::byte* const run = panel + panel_bytes(Layout::pairs8, first);
    auto* const to = reinterpret_cast<int8_t*>(run + kPanel * sizeof(float)) + 2 * column;
    reinterpret_cast<float*>(run)[column] =
        quantise_run(row + first, std::min(kScaleInputs, inputs - first),
                     [to](int k, int8_t value) { to[k / 2 * 2 * kPanel + k % 2] = value; });
  }
}

/// The factor that brings a block of weights to the length of a block of integers: infinite for zeros, NaN
/// where a weight is not finite.
float pair_factor(const float* x, int n) {
  constexpr int kParts = 16;  // sums that can be added up side by side
  float squares[kParts] = {}, most[kParts] = {};
  for (int i = 0; i < n; i += kParts)
    for (int j = 0; j < std::min(kParts, n - i); ++j) {
      const float value = std::abs(x[i + j]);
      squares[j] += value * value, most[j] = std::max(most[j], value);
    }
  float square = 0;
  for (const float s : squares) square += s;
  if (!std::isfinite(square)) return std::numeric_limits<float>::quiet_NaN();
  const float largest = *std::max_element(most, most + kParts);
  if (largest < kLeastPair) return std::numeric_limits<float>::infinity();
  return std::min(kPairLength / std::sqrt(square), kMostPair / largest);
}

/// Gathers all weights of an output as [kernel][inputs].
void gather_output(const TensorSource& source, const PackShape& s, int output, std::vector<float>& to) {
  const int64_t kernel = int64_t{s.taps} * s.groups, count = s.inputs * kernel;
  const auto element = static_cast<int64_t>(dtype_size(source.dtype));
  to.resize(static_cast<size_t>(count));
  if (kernel == 1)
    return to_float(source.dtype, source.data.data() + output * count * element, count, to.data());
  std::vector<float> run(to.size());
  if (s.transposed)
    for (int64_t k = 0; k < s.inputs; ++k)
      to_float(source.dtype, source.data.data() + (k * s.outputs + output) * kernel * element, kernel,
               run.data() + k * kernel);
  else
    to_float(source.dtype, source.data.data() + output * count * element, count, run.data());
  for (int64_t k = 0, i = 0; k < s.inputs; ++k)
    for (int64_t j = 0; j < kernel; ++j, ++i)
      to[static_cast<size_t>(j * s.inputs + k)] = run[static_cast<size_t>(i)];
}

/// Fills one panel of every group with 16-bit pairs. An output has one scale, that of its longest block.
void pack_pairs16(const TensorSource& source, const PackShape& s, const PackedMatrix& m, int panel,
                  std::vector<float>& run) {
  const int first = panel * kPanel, columns = std::min(kPanel, s.outputs - first);
  for (int c = 0; c < columns; ++c) {
    gather_output(source, s, first + c, run);
    float factor = std::numeric_limits<float>::infinity();
    for (int64_t at = 0; at < static_cast<int64_t>(run.size()); at += s.inputs)
      for (int k = 0; k < s.inputs; k += kPairBlock) {
        const float f = pair_factor(run.data() + at + k, std::min(kPairBlock, s.inputs - k));
        if (f < factor || std::isnan(f)) factor = f;  // NaN stays
      }
    for (int j = 0; j < s.taps * s.groups; ++j) {
      std::byte* const base = m.panel(s.groups > 1 ? j : 0, panel);
      reinterpret_cast<float*>(base)[c] = 1 / factor;
      if (!std::isfinite(factor)) continue;
      auto* const to = reinterpret_cast<int16_t*>(base + panel_bytes(Layout::pairs16, 0)) +
                       (s.groups > 1 ? 0 : j) * m.tap_elements() + 2 * c;
      const float* const from = run.data() + int64_t{j} * s.inputs;
      // Adding 1.5 * 2^23 leaves the integer nearest to the product in the low bits.
      for (int k = 0; k < s.inputs; ++k)
        to[k / 2 * 2 * kPanel + k % 2] =
            static_cast<int16_t>(std::bit_cast<int32_t>(from[k] * factor + 0x1.8p23f) - 0x4B400000);
    }
  }
}

PackedMatrix pack(const TensorSource& source, const PackShape& s, Layout layout, Pool& pool, Arena& arena) {
  PackedMatrix m;
  m.layout = layout;
  m.outputs = s.outputs, m.inputs = s.inputs, m.taps = s.taps, m.groups = s.groups;
  m.size = checked_bytes(source.name, s.groups, m.group_stride(), 1);
  m.data = arena.take(source.name, m.size);
  std::vector<std::vector<float>> runs(static_cast<size_t>(pool.threads()));
  pool.run(m.panels(), [&](int panel, int thread) {
    std::vector<float>& run = runs[static_cast<size_t>(thread)];
    switch (layout) {
      case Layout::f32: return pack_panel(source, s, m, panel, run);
      case Layout::pairs16: return pack_pairs16(source, s, m, panel, run);
      case Layout::bf16:
        return pack_rounded(source, m, panel, run, [&](const float* row, int column, std::byte* to) {
          store_bf16(row, m.inputs, column, to);
        });
      case Layout::int8:
        return pack_rounded(source, m, panel, run, [&](const float* row, int column, std::byte* to) {
          store_int8(row, m.inputs, column, to);
        });
      case Layout::pairs8:
        return pack_rounded(source, m, panel, run, [&](const float* row, int column, std::byte* to) {
          store_pairs8(row, m.inputs, column, to);
        });
    }
  });
  return m;
}

std::vector<Segment> plan_pairs(int taps, int inputs, int64_t tap_offset, int64_t tap_weights) {
  std::vector<Segment> segments;
  for (int t = 0; t < taps; ++t)
    for (int first = 0; first < inputs; first += kPairBlock)
      segments.push_back({.offset = t * tap_offset + row_words(Layout::pairs16, first),
                          .weights = t * tap_weights + int64_t{first} * kPanel,
                          .length = std::min(kPairBlock, inputs - first)});
  return segments;
}

}  // namespace

Compute parse_compute(std::string_view name) {
  if (name == "exact") return Compute::exact;
  if (name == "fast") return Compute::fast;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("compute \"{}\" is unknown; give one of exact, fast", name));
}

Layout choose_layout(WeightPrecision wanted, Compute compute, WeightRole role, const TensorSource& source) {
  const Packing packing = choose_packing(wanted, role, source);
  if (compute == Compute::fast && !source.exact)
    return packing == Packing::int8 ? Layout::pairs8 : Layout::pairs16;
  switch (packing) {
    case Packing::int8: return Layout::int8;
    case Packing::bf16: return Layout::bf16;
    case Packing::f32: break;
  }
  return Layout::f32;
}

LoadedWeight load_weight(WeightRole role, const TensorSource& source, Layout layout, Pool& pool,
                         Arena& arena) {
  const std::vector<int64_t> shape = check_source(role, source);
  const auto dim = [&](size_t i) { return static_cast<int>(shape[i]); };
  LoadedWeight w;
  w.role = role, w.name = source.name;
  switch (role) {
    case WeightRole::matrix:
      w.packed = pack(source, {.outputs = dim(0), .inputs = dim(1)}, layout, pool, arena);
      break;
    case WeightRole::convolution:
      w.packed = pack(source, {.outputs = dim(0), .inputs = dim(1), .taps = dim(2)}, layout, pool, arena);
      break;
    case WeightRole::transposed_convolution:
      w.packed = pack(source, {.outputs = dim(1), .inputs = dim(0), .groups = dim(2), .transposed = true},
                      layout, pool, arena);
      break;
    case WeightRole::table:
      w.table = source.data, w.table_type = source.dtype;
      w.rows = shape[0], w.width = shape[1];
      break;
    case WeightRole::vector:
      w.rows = 1, w.width = shape[0];
      w.values.resize(static_cast<size_t>(shape[0]));
      to_float(source.dtype, source.data.data(), shape[0], w.values.data());
      break;
    case WeightRole::depthwise: {
      const int64_t channels = shape[0], taps = shape[2];
      w.rows = taps, w.width = channels;
      w.values.resize(static_cast<size_t>(channels * taps));
      each_element(source.dtype, source.data.data(), channels * taps, [&](int64_t i, float value) {
        w.values[static_cast<size_t>(i % taps * channels + i / taps)] = value;
      });
      break;
    }
  }
  if (w.packed.data) {
    w.outputs = w.packed.outputs, w.inputs = w.packed.inputs;
    w.taps = w.packed.taps * w.packed.groups;
  }
  return w;
}

void read_table_row(const LoadedWeight& table, int64_t index, bool add, float* out) {
  const std::byte* from =
      table.table.data() + index * table.width * static_cast<int64_t>(dtype_size(table.table_type));
  if (add)
    each_element(table.table_type, from, table.width, [out](int64_t i, float value) { out[i] += value; });
  else
    to_float(table.table_type, from, table.width, out);
}

std::vector<Segment> plan_segments(const PackedMatrix& matrix, int taps, int64_t tap_offset,
                                   int64_t tap_weights) {
  const int inputs = matrix.inputs;
  if (is_pairs(matrix.layout)) return plan_pairs(taps, inputs, tap_offset, tap_weights);
  std::vector<Segment> segments;
  int block = 0;  // inputs of the open block
  const auto close = [&] {
    if (!segments.empty()) segments.back().ends_block = true;
    block = 0;
  };
  for (int t = 0; t < taps; ++t) {
    for (int first = 0; first < inputs; first += kBlockInputs) {
      const int length = std::min(kBlockInputs, inputs - first);
      if (block + length > kBlockInputs) close();
      const Segment next{.offset = t * tap_offset + first,
                         .weights = t * tap_weights + int64_t{first} * kPanel,
                         .length = length,
                         .ends_block = false};
      // Adjacent runs are one run: the same order with a longer loop.
      Segment* last = segments.empty() || segments.back().ends_block ? nullptr : &segments.back();
      if (last && last->offset + last->length == next.offset &&
          last->weights + int64_t{last->length} * kPanel == next.weights)
        last->length += length;
      else
        segments.push_back(next);
      block += length;
    }
  }
  close();
  return segments;
}

}  // namespace skald::backend::cpu
