// Packing of checkpoint tensors for the GPU.
#include "backend/gpu/packing.h"

#include <algorithm>

namespace skald::backend::gpu {
namespace {

/// Where element (output, input, tap) of a source tensor is.
struct SourceOrder {
  int64_t output, input, tap;  ///< steps, in elements
};

ElementKind kind_of(Packing packing) {
  switch (packing) {
    case Packing::f32: return kElementF32;
    case Packing::bf16: return kElementBf16;
    case Packing::int8: return kElementInt8;
  }
  return kElementF32;
}

ElementKind kind_of(Dtype type) {
  return type == Dtype::f32 ? kElementF32 : type == Dtype::bf16 ? kElementBf16 : kElementF16;
}

/// Stores the inputs of one output and tap. `column` is the output within its panel.
void store_row(const PanelLayout& l, const float* x, int tap, int column, std::byte* panel) {
  std::byte* const base = panel + tap * l.tap_bytes();
  for (int i = 0; i < l.inputs; ++i) {
    std::byte* const group = base + int64_t{i / 32} * group_bytes(l.kind);
    const int lane = i % 32;
    if (l.kind == kElementBf16) {
      reinterpret_cast<uint16_t*>(group + 16 * lane)[column] = to_bf16(x[i]);
    } else {  // two planes of four outputs
      reinterpret_cast<float*>(group + 512 * (column / 4) + 16 * lane)[column % 4] = x[i];
    }
  }
}

void store_int8_row(const PanelLayout& l, const float* x, int column, std::byte* panel) {
  for (int g = 0; g < l.groups(); ++g) {
    const int first = g * kScaleInputs, n = std::min(kScaleInputs, l.inputs - first);
    std::byte* const group = panel + int64_t{g} * group_bytes(l.kind);
    auto* const scales = reinterpret_cast<float*>(panel + l.scale_bytes()) + g * kPanelOutputs;
    scales[column] = quantise_run(x + first, n, [&](int k, int8_t value) {
      group[16 * (k / 2) + 8 * (k % 2) + column] = static_cast<std::byte>(value);
    });
  }
}

std::vector<std::byte> pack_panels(const TensorSource& source, const PanelLayout& l, const SourceOrder& order,
                                   Pool& pool) {
  static_assert(kScaleInputs == group_inputs(kElementInt8));
  std::vector<std::byte> bytes(static_cast<size_t>(l.bytes()));
  const auto element = static_cast<int64_t>(dtype_size(source.dtype));
  std::vector<std::vector<float>> rows(static_cast<size_t>(pool.threads()));
  pool.run(l.panels(), [&](int panel, int thread) {
    std::vector<float>& row = rows[static_cast<size_t>(thread)];
    row.resize(static_cast<size_t>(l.inputs));
    std::byte* const to = bytes.data() + panel * l.panel_bytes();
    const int first = panel * kPanelOutputs, columns = std::min(kPanelOutputs, l.outputs - first);
    for (int c = 0; c < columns; ++c)
      for (int t = 0; t < l.taps; ++t) {
        const int64_t at = (first + c) * order.output + t * order.tap;
        if (order.input == 1)
          to_float(source.dtype, source.data.data() + at * element, l.inputs, row.data());
        else
          for (int i = 0; i < l.inputs; ++i)
            to_float(source.dtype, source.data.data() + (at + i * order.input) * element, 1,
                     &row[static_cast<size_t>(i)]);
        if (l.kind == kElementInt8)
          store_int8_row(l, row.data(), c, to);
        else
          store_row(l, row.data(), t, c, to);
      }
  });
  return bytes;
}

/// A small tensor as floats, with the last dimension first (depthwise: taps, channels).
std::vector<std::byte> pack_floats(const TensorSource& source, int64_t rows, int64_t width) {
  std::vector<float> values(static_cast<size_t>(rows * width));
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  auto* const to = reinterpret_cast<float*>(bytes.data());
  to_float(source.dtype, source.data.data(), rows * width, values.data());
  for (int64_t i = 0; i < rows * width; ++i) to[i % rows * width + i / rows] = values[static_cast<size_t>(i)];
  return bytes;
}

}  // namespace

PackedWeight pack_weight(WeightRole role, const TensorSource& source, WeightPrecision precision, Pool& pool) {
  const std::vector<int64_t> shape = check_source(role, source);
  const auto dim = [&](size_t i) { return static_cast<int>(shape[i]); };
  PackedWeight p;
  DeviceWeight& w = p.weight;
  w.role = role, w.name = source.name;
  w.kind = kind_of(choose_packing(precision, role, source));
  switch (role) {
    case WeightRole::matrix:
      w.outputs = dim(0), w.inputs = dim(1);
      p.bytes = pack_panels(source, w.layout(), {shape[1], 1, 0}, pool);
      break;
    case WeightRole::convolution:
      w.outputs = dim(0), w.inputs = dim(1), w.taps = dim(2);
      p.bytes = pack_panels(source, w.layout(), {shape[1] * shape[2], shape[2], 1}, pool);
      break;
    case WeightRole::transposed_convolution:
      w.inputs = dim(0), w.outputs = dim(1), w.taps = dim(2);
      p.bytes = pack_panels(source, w.layout(), {shape[2], shape[1] * shape[2], 1}, pool);
      break;
    case WeightRole::table:
      w.rows = shape[0], w.width = shape[1], w.kind = kind_of(source.dtype);
      p.source = source.data;
      break;
    case WeightRole::vector:
      w.rows = 1, w.width = shape[0];
      p.bytes = pack_floats(source, 1, shape[0]);
      break;
    case WeightRole::depthwise:
      w.rows = shape[2], w.width = shape[0];
      p.bytes = pack_floats(source, shape[2], shape[0]);
      break;
  }
  w.bytes = p.data().size();
  return p;
}

}  // namespace skald::backend::gpu
