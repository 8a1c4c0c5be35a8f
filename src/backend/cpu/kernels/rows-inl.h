// Kernels over one row: norms, rotation, snake, depthwise convolution. Included once per target.
#if defined(SKALD_BACKEND_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_ROWS_INL_H_
#undef SKALD_BACKEND_CPU_ROWS_INL_H_
#else
#define SKALD_BACKEND_CPU_ROWS_INL_H_
#endif

#include "backend/cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

/// 1 / sqrt(mean(x^2) + epsilon).
HWY_INLINE float inverse_rms(const float* x, int n, float epsilon) {
  return 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
}

void rms_norm(const float* x, const float* weight, float epsilon, int n, float* out) {
  const V factor = hn::Set(kD, inverse_rms(x, n, epsilon));
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i, [&](V a, V w, V, V) HWY_ATTR { return hn::Mul(w, hn::Mul(a, factor)); }, x + i,
        weight + i);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon, int n, float* out) {
  const float count = static_cast<float>(n);
  const float mean = reduce(x, x, n, 0.0f, [](V sum, V a, V) HWY_ATTR { return hn::Add(sum, a); }) / count;
  const V middle = hn::Set(kD, mean);
  // Tail elements read as the mean, so that they add nothing.
  const float squares = reduce(x, x, n, mean, [&](V sum, V a, V) HWY_ATTR {
    const V d = hn::Sub(a, middle);
    return hn::MulAdd(d, d, sum);
  });
  const V factor = hn::Set(kD, 1.0f / std::sqrt(squares / count + epsilon));
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i,
        [&](V a, V w, V b, V) HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(a, middle), factor), w, b); },
        x + i, weight + i, bias ? bias + i : nullptr);
  });
}

void rotate(const float* x, const HeadShape& shape, float* out) {
  const int half = shape.head_dim / 2;
  const V factor = hn::Set(kD, shape.norm ? inverse_rms(x, shape.head_dim, shape.epsilon) : 1.0f);
  const float* cosine = shape.rope;
  const float* sine = shape.rope + half;
  // Products are rounded before they are added, as in the reference.
  for_strips(half, [&](int i, int length) HWY_ATTR {
    alignas(64) float low[kPanel], high[kPanel];
    const auto normed = [&](V a, V w, V, V)
                            HWY_ATTR { return shape.norm ? hn::Mul(w, hn::Mul(a, factor)) : a; };
    map_strip(length, low, normed, x + i, shape.norm ? shape.norm + i : nullptr);
    map_strip(length, high, normed, x + half + i, shape.norm ? shape.norm + half + i : nullptr);
    map_strip(
        length, out + i, [](V a, V b, V c, V s) HWY_ATTR { return hn::Sub(hn::Mul(a, c), hn::Mul(b, s)); },
        low, high, cosine + i, sine + i);
    map_strip(
        length, out + half + i,
        [](V a, V b, V c, V s) HWY_ATTR { return hn::Add(hn::Mul(b, c), hn::Mul(a, s)); }, low, high,
        cosine + i, sine + i);
  });
}

void snake(const float* x, const float* alpha, const float* inverse_beta, int n, float* out) {
  V largest = hn::Zero(kD);
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i,
        [&](V a, V al, V ib, V) HWY_ATTR {
          const V angle = hn::Mul(a, al);
          largest = hn::Max(largest, hn::Abs(angle));
          return hn::Add(a, hn::Mul(ib, sin_squared(angle)));
        },
        x + i, alpha + i, inverse_beta + i);
  });
  if (HWY_LIKELY(hn::AllTrue(kD, hn::Le(largest, hn::Set(kD, kSinRange))))) return;
  // Angles beyond the vector code's range are rare enough for the C library.
  for (int i = 0; i < n; ++i) {
    const float angle = x[i] * alpha[i];
    if (!(std::abs(angle) > kSinRange)) continue;
    const auto s = static_cast<float>(std::sin(static_cast<double>(angle)));
    out[i] = x[i] + inverse_beta[i] * (s * s);
  }
}

void depthwise(const float* const* rows, const float* weight, const float* bias, int taps, int channels,
               float* out) {
  for_strips(channels, [&](int i, int length) HWY_ATTR {
    alignas(64) float sum[kPanel] = {};
    for (int t = 0; t < taps; ++t)
      map_strip(
          length, sum, [](V x, V w, V s, V) HWY_ATTR { return hn::MulAdd(x, w, s); }, rows[t] + i,
          weight + int64_t{t} * channels + i, sum);
    map_strip(
        length, out + i, [](V s, V b, V, V) HWY_ATTR { return hn::Add(s, b); }, sum,
        bias ? bias + i : nullptr);
  });
}

void elu_row(const float* x, int n, float* out) {
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i, [](V a, V, V, V) HWY_ATTR { return elu(a); }, x + i);
  });
}

void scale_add(const float* x, const float* scale, const float* residual, int n, float* out) {
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i, [](V a, V s, V r, V) HWY_ATTR { return hn::Add(r, hn::Mul(a, s)); }, x + i,
        scale + i, residual ? residual + i : nullptr);
  });
}

void add(const float* x, int n, float* out) {
  for_strips(n, [&](int i, int length) HWY_ATTR {
    map_strip(
        length, out + i, [](V a, V b, V, V) HWY_ATTR { return hn::Add(a, b); }, out + i, x + i);
  });
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
