// Attention of one row over the cached keys and values of one kv head. Included once per target.
#if defined(SKALD_BACKEND_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_ATTENTION_INL_H_
#undef SKALD_BACKEND_CPU_ATTENTION_INL_H_
#else
#define SKALD_BACKEND_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

/// scores <- exp(scores - max) / sum; `padded` of them, those beyond the keys are -infinity.
HWY_INLINE void softmax(float* scores, int64_t padded) {
  V most = hn::Set(kD, -std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < padded; i += kLanes) most = hn::Max(most, hn::Load(kD, scores + i));
  alignas(64) float lanes[kLanes];
  hn::Store(most, kD, lanes);
  const V largest = hn::Set(kD, *std::max_element(lanes, lanes + kLanes));
  V sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kD);
  for (int64_t i = 0; i < padded; i += kPanel)
    for (int v = 0; v < kVectors; ++v) {
      float* at = scores + i + v * kLanes;
      const V e = exponential(hn::Sub(hn::Load(kD, at), largest));
      hn::Store(e, kD, at);
      sums[v] = hn::Add(sums[v], e);
    }
  const V total = hn::Set(kD, fold(sums));
  for (int64_t i = 0; i < padded; i += kLanes)
    hn::Store(hn::Div(hn::Load(kD, scores + i), total), kD, scores + i);
}

/// out[0..16 * kStrips) = sum over keys of p[key] * v[key], keys in order of position.
template <int kStrips>
HWY_INLINE void weigh_values(const AttendArgs& a, const float* p, int64_t keys, int first_column,
                             float* out) {
  V acc[kStrips * kVectors];
  for (V& x : acc) x = hn::Zero(kD);
  int64_t row = a.first % a.capacity;
  for (int64_t j = 0; j < keys; ++j) {
    const float* v = a.v + row * a.v_stride + first_column;
    const V weight = hn::Set(kD, p[j]);
#pragma GCC unroll 16
    for (int i = 0; i < kStrips * kVectors; ++i)
      acc[i] = hn::MulAdd(weight, hn::LoadU(kD, v + i * kLanes), acc[i]);
    if (++row == a.capacity) row = 0;
  }
  for (int i = 0; i < kStrips * kVectors; ++i) hn::StoreU(acc[i], kD, out + i * kLanes);
}

/// The same for the last `length` < 16 columns.
HWY_INLINE void weigh_tail(const AttendArgs& a, const float* p, int64_t keys, int first_column, int length,
                           float* out) {
  alignas(64) float sum[kPanel] = {};
  int64_t row = a.first % a.capacity;
  for (int64_t j = 0; j < keys; ++j) {
    const V weight = hn::Set(kD, p[j]);
    map_strip(
        length, sum, [&](V v, V s, V, V) HWY_ATTR { return hn::MulAdd(weight, v, s); },
        a.v + row * a.v_stride + first_column, sum);
    if (++row == a.capacity) row = 0;
  }
  std::memcpy(out, sum, static_cast<size_t>(length) * sizeof(float));
}

void attend(const AttendArgs& a) {
  const int64_t keys = a.last - a.first + 1, padded = attend_scores(keys);
  int64_t row = a.first % a.capacity;
  for (int64_t j = 0; j < keys; ++j) {
    const float* k = a.k + row * a.k_stride;
    for (int g = 0; g < a.group; ++g)
      a.scores[g * padded + j] = dot(a.q + g * a.head_dim, k, a.head_dim) * a.scale;
    if (++row == a.capacity) row = 0;
  }
  for (int g = 0; g < a.group; ++g) {
    float* scores = a.scores + g * padded;
    std::fill(scores + keys, scores + padded, -std::numeric_limits<float>::infinity());
    softmax(scores, padded);
    float* out = a.out + g * a.head_dim;
    int column = 0;
    for (; column + 4 * kPanel <= a.head_dim; column += 4 * kPanel)
      weigh_values<4>(a, scores, keys, column, out + column);
    for (; column + kPanel <= a.head_dim; column += kPanel)
      weigh_values<1>(a, scores, keys, column, out + column);
    if (column < a.head_dim) weigh_tail(a, scores, keys, column, a.head_dim - column, out + column);
  }
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
