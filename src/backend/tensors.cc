// Checks and element types of checkpoint tensors.
#include "backend/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skald/error.h"

namespace skald::backend {
namespace {

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

}  // namespace

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

}  // namespace skald::backend
