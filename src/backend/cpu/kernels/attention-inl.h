// Attention of one row over the cached keys and values of one kv head. Included once per target.
#if defined(SKALD_BACKEND_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_ATTENTION_INL_H_
#undef SKALD_BACKEND_CPU_ATTENTION_INL_H_
#else
#define SKALD_BACKEND_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>

#include <hwy/cache_control.h>

#include "backend/cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

// Rows of one head lie a whole cache row apart, mostly on other pages, where the hardware does not prefetch.
constexpr int kPrefetchRows = 8;

HWY_INLINE void prefetch(const float* row, int length) {
  for (int i = 0; i < length; i += 16) hwy::Prefetch(row + i);
}

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
    if (j + kPrefetchRows < keys) prefetch(v + kPrefetchRows * a.v_stride, kStrips * kPanel);
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

/// scores[g * padded] = scale * q[g] . k for kHeads query heads that share one key.
template <int kHeads>
HWY_INLINE void score_heads(const AttendArgs& a, const float* q, const float* k, float* scores,
                            int64_t padded) {
  const int whole = a.head_dim / kPanel * kPanel;
  V sums[kHeads][kVectors];
#pragma GCC unroll 4
  for (int g = 0; g < kHeads; ++g)
    for (int v = 0; v < kVectors; ++v) sums[g][v] = hn::Zero(kD);
  for (int i = 0; i < whole; i += kPanel)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const V key = hn::LoadU(kD, k + i + v * kLanes);
#pragma GCC unroll 4
      for (int g = 0; g < kHeads; ++g)
        sums[g][v] = hn::MulAdd(hn::LoadU(kD, q + g * a.head_dim + i + v * kLanes), key, sums[g][v]);
    }
#pragma GCC unroll 4
  for (int g = 0; g < kHeads; ++g) scores[g * padded] = fold(sums[g]) * a.scale;
}

/// Scores of all query heads of the group against one key. Head sizes that are no multiple of 16 take the
/// plain way: the same order with a padded tail.
HWY_INLINE void score_key(const AttendArgs& a, const float* k, float* scores, int64_t padded) {
  int g = 0;
  if (a.head_dim % kPanel == 0) {
    for (; g + 2 <= a.group; g += 2) score_heads<2>(a, a.q + g * a.head_dim, k, scores + g * padded, padded);
    for (; g < a.group; ++g) score_heads<1>(a, a.q + g * a.head_dim, k, scores + g * padded, padded);
  }
  for (; g < a.group; ++g) scores[g * padded] = dot(a.q + g * a.head_dim, k, a.head_dim) * a.scale;
}

void attend(const AttendArgs& a) {
  const int64_t keys = a.last - a.first + 1, padded = attend_scores(keys);
  int64_t row = a.first % a.capacity;
  for (int64_t j = 0; j < keys; ++j) {
    const float* k = a.k + row * a.k_stride;
    if (j + kPrefetchRows < keys) prefetch(k + kPrefetchRows * a.k_stride, a.head_dim);
    score_key(a, k, a.scores + j, padded);
    if (++row == a.capacity) row = 0;
  }
  for (int g = 0; g < a.group; ++g) {
    float* scores = a.scores + g * padded;
    std::fill(scores + keys, scores + padded, -std::numeric_limits<float>::infinity());
    softmax(scores, padded);
    float* out = a.out + g * a.head_dim;
    constexpr int kWide = std::max(1, 8 / kVectors);  // eight accumulators hide the latency of an addition
    int column = 0;
    for (; column + kWide * kPanel <= a.head_dim; column += kWide * kPanel)
      weigh_values<kWide>(a, scores, keys, column, out + column);
    for (; column + kPanel <= a.head_dim; column += kPanel)
      weigh_values<1>(a, scores, keys, column, out + column);
    if (column < a.head_dim) weigh_tail(a, scores, keys, column, a.head_dim - column, out + column);
  }
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
