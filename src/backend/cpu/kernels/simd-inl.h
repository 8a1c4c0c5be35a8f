// Vectors of 16 floats ("strips") on any instruction set, and the elementary functions. Included once per
// target.
//
// A strip is one to sixteen vectors; every operation is elementwise, so results do not depend on the vector
// width. The functions are within 2 units in the last place on the ranges given
// (tests/backend/kernels_test.cc).
#if defined(SKALD_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_SIMD_INL_H_
#undef SKALD_BACKEND_CPU_SIMD_INL_H_
#else
#define SKALD_BACKEND_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kPanel>;
using V = hn::Vec<D>;
constexpr D kD{};
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectors = kPanel / kLanes;  // vectors of one strip
static_assert(kLanes * kVectors == kPanel);

// Whether MulAdd rounds once. Follows Highway's implementation of each target.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
constexpr bool kFused = false;
#else
constexpr bool kFused = true;
#endif

// ---- strips

/// Calls f(offset, length) for every strip of n elements; only the last length can be below 16.
template <class F>
HWY_INLINE void for_strips(int n, F&& f) {
  int i = 0;
  for (; i + kPanel <= n; i += kPanel) f(i, kPanel);
  if (i < n) f(i, n - i);
}

/// out[i] = f(a[i], b[i], c[i], d[i]) for one strip, never touching memory beyond `length`. Absent inputs are
/// zero.
template <class F>
HWY_INLINE void map_strip(int length, float* out, F&& f, const float* a, const float* b = nullptr,
                          const float* c = nullptr, const float* d = nullptr) {
  const auto load = [](const float* x, int at) HWY_ATTR { return x ? hn::LoadU(kD, x + at) : hn::Zero(kD); };
  if (HWY_LIKELY(length == kPanel)) {
    for (int v = 0; v < kPanel; v += kLanes)
      hn::StoreU(f(load(a, v), load(b, v), load(c, v), load(d, v)), kD, out + v);
    return;
  }
  float tail[5][kPanel] = {};
  const size_t bytes = static_cast<size_t>(length) * sizeof(float);
  const float* inputs[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (inputs[i]) std::memcpy(tail[i], inputs[i], bytes);
  for (int v = 0; v < kPanel; v += kLanes)
    hn::StoreU(f(load(tail[0], v), load(tail[1], v), load(tail[2], v), load(tail[3], v)), kD, tail[4] + v);
  std::memcpy(out, tail[4], bytes);
}

/// Sum of the lanes of one vector, folded in halves.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float fold_lanes(D, V v) { return hn::GetLane(v); }
#else
template <class DV>
HWY_INLINE float fold_lanes(DV d, hn::Vec<DV> v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<DV> half;
    return fold_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}
#endif

/// Sum of the 16 accumulators of a strip, folded in halves: the one order of every reduction over a row.
HWY_INLINE float fold(V* accumulators) {
#pragma GCC unroll 4
  for (int half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int v = 0; v < half; ++v) accumulators[v] = hn::Add(accumulators[v], accumulators[v + half]);
  return fold_lanes(kD, accumulators[0]);
}

/// Sum of f(accumulator, x[i], y[i]) over a row: f is a multiply-add or an add. Missing tail elements read as
/// `fill`.
template <class F>
HWY_INLINE float reduce(const float* x, const float* y, int n, float fill, F&& f) {
  V sums[kVectors];
  for (V& sum : sums) sum = hn::Zero(kD);
  for_strips(n, [&](int i, int length) HWY_ATTR {
    const float* a = x + i;
    const float* b = y + i;
    float tail_a[kPanel], tail_b[kPanel];
    if (HWY_UNLIKELY(length < kPanel)) {
      for (int j = 0; j < kPanel; ++j) {
        tail_a[j] = j < length ? a[j] : fill;
        tail_b[j] = j < length ? b[j] : fill;
      }
      a = tail_a, b = tail_b;
    }
    for (int v = 0; v < kVectors; ++v)
      sums[v] = f(sums[v], hn::LoadU(kD, a + v * kLanes), hn::LoadU(kD, b + v * kLanes));
  });
  return fold(sums);
}

HWY_INLINE float dot(const float* x, const float* y, int n) {
  return reduce(x, y, n, 0.0f, [](V sum, V a, V b) HWY_ATTR { return hn::MulAdd(a, b, sum); });
}

// ---- elementary functions

/// c[0] + c[1] x + c[2] x^2 ... by Horner's rule.
template <size_t kCount>
HWY_INLINE V polynomial(V x, const float (&c)[kCount]) {
  V y = hn::Set(kD, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) y = hn::MulAdd(y, x, hn::Set(kD, c[i]));
  return y;
}

/// exp(r) = 1 + r + r^2 (kExp[0] + kExp[1] r + ...) for |r| up to ln 2 / 2.
constexpr float kExp[] = {0.5f, 0.166666657f, 0.0416664593f, 0.0083335638f, 0.00139354484f, 0.000197460511f};

/// exp(x + low), |low| small. Results below the normal range are 0, above it infinity; NaN stays NaN.
HWY_INLINE V exp_sum(V x, V low) {
  const V clamped = hn::Min(hn::Max(x, hn::Set(kD, -104.0f)), hn::Set(kD, 89.0f));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(kD, 1.44269504f)));
  // ln 2 in two parts; n times the first (13 bits) is exact.
  V r = hn::Sub(clamped, hn::Mul(n, hn::Set(kD, 0x1.62ep-1f)));
  r = hn::Sub(r, hn::Mul(n, hn::Set(kD, 0x1.0bfbe8p-15f)));
  r = hn::Add(r, low);
  const V e = hn::Add(hn::Set(kD, 1.0f), hn::MulAdd(polynomial(r, kExp), hn::Mul(r, r), r));
  // 2^n as a product of two powers, so that n = 128 is reached.
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto first = hn::ShiftRight<1>(whole), second = hn::Sub(whole, first);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(kD, hn::ShiftLeft<23>(hn::Add(first, bias)));
  const V scale2 = hn::BitCast(kD, hn::ShiftLeft<23>(hn::Add(second, bias)));
  V y = hn::Mul(hn::Mul(e, scale1), scale2);
  y = hn::IfThenElse(hn::Lt(x, hn::Set(kD, -87.3365479f)), hn::Zero(kD), y);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(kD, 88.7228317f)), hn::Set(kD, std::numeric_limits<float>::infinity()),
                     y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

HWY_INLINE V exponential(V x) { return exp_sum(x, hn::Zero(kD)); }

/// exp(x) - 1 for x <= 0, without cancellation; NaN stays NaN.
HWY_INLINE V exp_minus_one(V x) {
  const V clamped = hn::Max(x, hn::Set(kD, -30.0f));  // below, exp(x) is less than half a unit of 1
  const V n = hn::Round(hn::Mul(clamped, hn::Set(kD, 1.44269504f)));
  V r = hn::Sub(clamped, hn::Mul(n, hn::Set(kD, 0x1.62ep-1f)));
  r = hn::Sub(r, hn::Mul(n, hn::Set(kD, 0x1.0bfbe8p-15f)));
  const V e = hn::MulAdd(polynomial(r, kExp), hn::Mul(r, r), r);
  const hn::RebindToSigned<D> di;
  const V scale = hn::BitCast(kD, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  const V y = hn::MulAdd(e, scale, hn::Sub(scale, hn::Set(kD, 1.0f)));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// x above 0, else exp(x) - 1.
HWY_INLINE V elu(V x) {
  const V low = exp_minus_one(hn::Min(x, hn::Zero(kD)));
  return hn::IfThenElse(hn::Le(x, hn::Zero(kD)), low, x);  // false for NaN, which stays
}

HWY_INLINE V relu(V x) { return hn::IfThenElse(hn::Lt(x, hn::Zero(kD)), hn::Zero(kD), x); }

/// tanh(max(x, 0)).
HWY_INLINE V relu_tanh(V x) {
  const V e = exp_minus_one(hn::Mul(relu(x), hn::Set(kD, -2.0f)));
  return hn::Div(hn::Neg(e), hn::Add(e, hn::Set(kD, 2.0f)));
}

/// 1 / (1 + exp(-x)).
HWY_INLINE V sigmoid(V x) {
  const V one = hn::Set(kD, 1.0f);
  return hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
}

/// x / (1 + exp(-x)).
HWY_INLINE V silu(V x) { return hn::Div(x, hn::Add(hn::Set(kD, 1.0f), exponential(hn::Neg(x)))); }

/// x / 2 * (1 + erf(x / sqrt 2)), without cancellation for negative x.
HWY_INLINE V gelu_erf(V x) {
  const V half = hn::Mul(x, hn::Set(kD, 0.5f)), one = hn::Set(kD, 1.0f);
  const V u = hn::Mul(x, hn::Set(kD, 0.707106769f));
  const V t = hn::Min(hn::Abs(u), hn::Set(kD, 10.0f));
  // |u| < 1: erf(u) = u + u P(u^2).
  static constexpr float kErf[] = {0.128379166f,  -0.37612626f,    0.112835787f,   -0.0268533472f,
                                   0.0051871622f, -0.00079978531f, 7.80690316e-05f};
  const V near = hn::Add(half, hn::Mul(half, hn::MulAdd(polynomial(hn::Mul(u, u), kErf), u, u)));
  // else erfc(t) = exp(-t^2) Q((t - 2) / (t + 2)) / (1 + 2 t). t^2 is split so that the exponent is exact.
  static constexpr float kErfc[] = {1.27697837f,   -0.0927638263f, -0.166029468f,
                                    0.164050445f,  -0.054236833f,  -0.00800532848f,
                                    0.0088095786f, 0.001041524f,   -0.00149572094f};
  const hn::RebindToUnsigned<D> du;
  const V two = hn::Set(kD, 2.0f);
  const V high = hn::BitCast(kD, hn::And(hn::BitCast(du, t), hn::Set(du, 0xFFFFF000u)));
  const V low = hn::Mul(hn::Sub(t, high), hn::Add(t, high));
  const V ratio = hn::Div(hn::Sub(t, two), hn::Add(t, two));
  const V scaled = hn::Div(polynomial(ratio, kErfc), hn::MulAdd(two, t, one));
  const V erfc = hn::Mul(exp_sum(hn::Neg(hn::Mul(high, high)), hn::Neg(low)), scaled);
  const V far = hn::Mul(half, hn::IfThenElse(hn::Gt(u, hn::Zero(kD)), hn::Sub(two, erfc), erfc));
  const V y = hn::IfThenElse(hn::Lt(t, one), near, far);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// Largest |x| that sin_squared() serves.
constexpr float kSinRange = kFused ? 1e6f : 25000.0f;

/// sin(x)^2 for |x| up to kSinRange; NaN and infinity give NaN. The sign of the sine does not matter: the
/// period is pi.
HWY_INLINE V sin_squared(V x) {
  const V n = hn::Round(hn::Mul(x, hn::Set(kD, 0.318309886f)));
  V r;
  if constexpr (kFused) {  // pi in three parts; the first subtraction is exact
    r = hn::NegMulAdd(n, hn::Set(kD, 0x1.921fb6p+1f), x);
    r = hn::NegMulAdd(n, hn::Set(kD, -0x1.777a5cp-24f), r);
    r = hn::NegMulAdd(n, hn::Set(kD, -0x1.ee59dap-49f), r);
  } else {  // 11 bits a part: products with n below 2^13 are exact
    r = hn::Sub(x, hn::Mul(n, hn::Set(kD, 0x1.92p+1f)));
    r = hn::Sub(r, hn::Mul(n, hn::Set(kD, 0x1.fb4p-11f)));
    r = hn::Sub(r, hn::Mul(n, hn::Set(kD, 0x1.444p-23f)));
    r = hn::Sub(r, hn::Mul(n, hn::Set(kD, 0x1.68c234p-38f)));
  }
  const V square = hn::Mul(r, r);
  static constexpr float kSin[] = {-0.166666597f, 0.00833306648f, -0.000198094349f, 2.60511274e-06f};
  const V s = hn::MulAdd(hn::Mul(polynomial(square, kSin), square), r, r);
  return hn::Mul(s, s);
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
