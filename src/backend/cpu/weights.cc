// Packing of checkpoint tensors.
#include "backend/cpu/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, exponent = (bits >> 10) & 31u,
                 mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Calls f(i, value) for `count` elements.
template <class F>
void each_element(Dtype type, const std::byte* from, int64_t count, F&& f) {
  const auto load = [from](int64_t i, auto* value) {
    std::memcpy(value, from + i * static_cast<int64_t>(sizeof(*value)), sizeof(*value));
  };
  uint16_t half;
  float whole;
  switch (type) {
    case Dtype::f32:
      for (int64_t i = 0; i < count; ++i) load(i, &whole), f(i, whole);
      break;
    case Dtype::f16:
      for (int64_t i = 0; i < count; ++i) load(i, &half), f(i, from_f16(half));
      break;
    case Dtype::bf16:
      for (int64_t i = 0; i < count; ++i) load(i, &half), f(i, from_bf16(half));
      break;
    default: break;  // refused by check_source()
  }
}

size_t rank_of(WeightRole role) {
  switch (role) {
    case WeightRole::vector: return 1;
    case WeightRole::matrix:
    case WeightRole::table: return 2;
    default: return 3;
  }
}

[[noreturn]] void refuse(const TensorSource& source, const std::string& why) {
  throw Error(ErrorCode::model_invalid,
              fmt::format("tensor '{}' with shape [{}] {}; the checkpoint does not fit its "
                          "configuration",
                          source.name, fmt::join(source.shape, ", "), why));
}

/// The shape in the role's rank. A matrix may come as a convolution of width 1.
std::vector<int64_t> check_source(WeightRole role, const TensorSource& source) {
  std::vector<int64_t> shape = source.shape;
  const size_t rank = rank_of(role);
  if (role == WeightRole::matrix && shape.size() == 3 && shape[2] == 1) shape.pop_back();
  if (shape.size() != rank) refuse(source, fmt::format("should have {} dimensions", rank));
  if (source.dtype != Dtype::f32 && source.dtype != Dtype::f16 && source.dtype != Dtype::bf16)
    refuse(source, "is not float32, float16 or bfloat16");
  int64_t count = 1;
  for (const int64_t n : shape) {
    if (n <= 0 || n > INT32_MAX || __builtin_mul_overflow(count, n, &count) || count > (int64_t{1} << 48))
      refuse(source, "has an impossible size");
  }
  if (source.data.size() != static_cast<size_t>(count) * dtype_size(source.dtype))
    refuse(source, fmt::format("has {} bytes of data", source.data.size()));
  if (role == WeightRole::depthwise && shape[1] != 1)
    refuse(source, "should have 1 input channel per output");
  return shape;
}

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

/// To the nearest, ties to even; NaN stays NaN.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

void store_bf16(const float* row, int inputs, int column, std::byte* panel) {
  auto* const to = reinterpret_cast<uint16_t*>(panel) + column;
  for (int k = 0; k < inputs; ++k) to[int64_t{k} * kPanel] = to_bf16(row[k]);
}

/// Symmetric: scale = largest magnitude / 127. Runs that are zero, or too small for a normal scale, become
/// zero; a run with a weight that is not finite has a NaN scale, so that its products are NaN as well.
void store_int8(const float* row, int inputs, int column, std::byte* panel) {
  for (int first = 0; first < inputs; first += kScaleInputs) {
    const float* const x = row + first;
    const int n = std::min(kScaleInputs, inputs - first);
    float largest = 0;
    bool finite = true;
    for (int k = 0; k < n; ++k) {
      largest = std::max(largest, std::abs(x[k]));
      finite = finite && std::isfinite(x[k]);
    }
    float scale = largest / 127.0f;
    if (scale < std::numeric_limits<float>::min()) scale = 0;
    const float inverse = finite && scale > 0 ? 1.0f / scale : 0.0f;
    std::byte* const run = panel + panel_bytes(Packing::int8, first);
    reinterpret_cast<float*>(run)[column] = finite ? scale : std::numeric_limits<float>::quiet_NaN();
    auto* const to = reinterpret_cast<int8_t*>(run + kPanel * sizeof(float)) + column;
    // Adding 1.5 * 2^23 leaves the integer nearest to the product in the low bits.
    for (int k = 0; k < n; ++k)
      to[k * kPanel] =
          finite ? static_cast<int8_t>(std::bit_cast<int32_t>(x[k] * inverse + 0x1.8p23f) - 0x4B400000)
                 : int8_t{0};
  }
}

PackedMatrix pack(const TensorSource& source, const PackShape& s, Packing packing, Pool& pool, Arena& arena) {
  PackedMatrix m;
  m.packing = packing;
  m.outputs = s.outputs, m.inputs = s.inputs, m.taps = s.taps, m.groups = s.groups;
  m.size = checked_bytes(source.name, s.groups, m.group_stride(), 1);
  m.data = arena.take(source.name, m.size);
  std::vector<std::vector<float>> runs(static_cast<size_t>(pool.threads()));
  pool.run(m.panels(), [&](int panel, int thread) {
    std::vector<float>& run = runs[static_cast<size_t>(thread)];
    switch (packing) {
      case Packing::f32: return pack_panel(source, s, m, panel, run);
      case Packing::bf16:
        return pack_rounded(source, m, panel, run, [&](const float* row, int column, std::byte* to) {
          store_bf16(row, m.inputs, column, to);
        });
      case Packing::int8:
        return pack_rounded(source, m, panel, run, [&](const float* row, int column, std::byte* to) {
          store_int8(row, m.inputs, column, to);
        });
    }
  });
  return m;
}

}  // namespace

void to_float(Dtype type, const std::byte* from, int64_t count, float* to) {
  each_element(type, from, count, [to](int64_t i, float value) { to[i] = value; });
}

WeightPrecision parse_precision(std::string_view name) {
  constexpr std::string_view kNames[] = {"auto", "f32", "bf16", "int8"};
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("weights \"{}\" are unknown; give one of {}", name, fmt::join(kNames, ", ")));
  return static_cast<WeightPrecision>(found - std::begin(kNames));
}

Packing choose_packing(WeightPrecision wanted, WeightRole role, const TensorSource& source) {
  if (role != WeightRole::matrix || wanted == WeightPrecision::f32) return Packing::f32;
  if (wanted == WeightPrecision::automatic || source.exact)
    return source.dtype == Dtype::bf16 ? Packing::bf16 : Packing::f32;
  return wanted == WeightPrecision::bf16 ? Packing::bf16 : Packing::int8;
}

LoadedWeight load_weight(WeightRole role, const TensorSource& source, WeightPrecision precision, Pool& pool,
                         Arena& arena) {
  const std::vector<int64_t> shape = check_source(role, source);
  const Packing packing = choose_packing(precision, role, source);
  const auto dim = [&](size_t i) { return static_cast<int>(shape[i]); };
  LoadedWeight w;
  w.role = role, w.name = source.name;
  switch (role) {
    case WeightRole::matrix:
      w.packed = pack(source, {.outputs = dim(0), .inputs = dim(1)}, packing, pool, arena);
      break;
    case WeightRole::convolution:
      w.packed = pack(source, {.outputs = dim(0), .inputs = dim(1), .taps = dim(2)}, packing, pool, arena);
      break;
    case WeightRole::transposed_convolution:
      w.packed = pack(source, {.outputs = dim(1), .inputs = dim(0), .groups = dim(2), .transposed = true},
                      packing, pool, arena);
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

std::vector<Segment> plan_segments(int taps, int inputs, int64_t tap_offset, int64_t tap_weights) {
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
