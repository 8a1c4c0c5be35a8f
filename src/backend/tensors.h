// Checkpoint tensors on their way to a device: checks, element types, rounding (docs/decisions/0006).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "base/half.h"

namespace skald::backend {

/// How the elements of a matrix are held. int8: runs of kScaleInputs inputs of an output share a scale.
enum class Packing : uint8_t { f32, bf16, int8 };
constexpr int kScaleInputs = 64;

/// What the user asks for. `automatic`: bf16 where the checkpoint has bf16, which is without loss, else f32.
/// Convolutions, and tensors that the model wants exact, are never rounded.
enum class WeightPrecision : uint8_t { automatic, f32, bf16, int8 };

/// "auto", "f32", "bf16" or "int8"; anything else is Error(invalid_argument) that lists them.
WeightPrecision parse_precision(std::string_view name);

/// The packing of one tensor.
Packing choose_packing(WeightPrecision wanted, WeightRole role, const TensorSource& source);

/// The shape in the role's rank; a matrix may come as a convolution of width 1. Throws Error(model_invalid)
/// naming the tensor when rank, type or size do not fit.
std::vector<int64_t> check_source(WeightRole role, const TensorSource& source);

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

/// `count` elements of a file as float32.
void to_float(Dtype type, const std::byte* from, int64_t count, float* to);

/// Rounds a run of at most kScaleInputs weights, calls store(i, int8) for each and returns their scale.
/// Symmetric: scale = largest magnitude / 127. Runs that are zero, or too small for a normal scale, become
/// zero; a run with a weight that is not finite has a NaN scale, so that its products are NaN as well.
template <class Store>
float quantise_run(const float* x, int n, Store&& store) {
  float largest = 0;
  bool finite = true;
  for (int k = 0; k < n; ++k) {
    largest = std::max(largest, std::abs(x[k]));
    finite = finite && std::isfinite(x[k]);
  }
  float scale = largest / 127.0f;
  if (scale < std::numeric_limits<float>::min()) scale = 0;
  const float inverse = finite && scale > 0 ? 1.0f / scale : 0.0f;
  // Adding 1.5 * 2^23 leaves the integer nearest to the product in the low bits.
  for (int k = 0; k < n; ++k)
    store(k, finite ? static_cast<int8_t>(std::bit_cast<int32_t>(x[k] * inverse + 0x1.8p23f) - 0x4B400000)
                    : int8_t{0});
  return finite ? scale : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace skald::backend
