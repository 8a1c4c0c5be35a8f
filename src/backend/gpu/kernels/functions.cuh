// Elementary functions in float32, within 2 units in the last place and the same on every device: the
// arithmetic is spelled out, no vendor approximation is used. They follow src/backend/cpu/kernels/simd-inl.h.
#pragma once
#include "backend/gpu/kernels/prelude.cuh"

/// (exp(r) - 1 - r) / r^2 for |r| up to ln 2 / 2.
KP_DEV float kp_exp_tail(float r) {
  float p = 0.000197460511f;
  p = kp_fma(p, r, 0.00139354484f);
  p = kp_fma(p, r, 0.0083335638f);
  p = kp_fma(p, r, 0.0416664593f);
  p = kp_fma(p, r, 0.166666657f);
  return kp_fma(p, r, 0.5f);
}

/// exp(x + low), |low| small. Results below the normal range are 0, above it infinity; NaN stays NaN.
KP_DEV float kp_exp_sum(float x, float low) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 89.0f ? 89.0f : c;
  const float n = kp_rint(c * 1.44269504f);
  float r = c - n * 0x1.62ep-1f;  // ln 2 in two parts; n times the first (13 bits) is exact
  r = r - n * 0x1.0bfbe8p-15f;
  r = r + low;
  const float e = 1.0f + kp_fma(kp_exp_tail(r), r * r, r);
  const int whole = n == n ? (int)n : 0, first = whole >> 1, second = whole - first;
  float y = e * kp_as_f32((kp_u32)(first + 127) << 23) * kp_as_f32((kp_u32)(second + 127) << 23);
  y = x < -87.3365479f ? 0.0f : y;
  y = x > 88.7228317f ? kp_infinity() : y;
  return x == x ? y : x;
}
KP_DEV float kp_exp(float x) { return kp_exp_sum(x, 0.0f); }

/// x / (1 + exp(-x)).
KP_DEV float kp_silu(float x) { return x / (1.0f + kp_exp(-x)); }

/// x / 2 * (1 + erf(x / sqrt 2)), without cancellation for negative x.
KP_DEV float kp_gelu(float x) {
  const float half = x * 0.5f, u = x * 0.707106769f;
  float t = kp_abs(u);
  t = t > 10.0f ? 10.0f : t;
  if (t < 1.0f) {
    const float s = u * u;
    float p = 7.80690316e-05f;
    p = kp_fma(p, s, -0.00079978531f);
    p = kp_fma(p, s, 0.0051871622f);
    p = kp_fma(p, s, -0.0268533472f);
    p = kp_fma(p, s, 0.112835787f);
    p = kp_fma(p, s, -0.37612626f);
    p = kp_fma(p, s, 0.128379166f);
    return half + half * kp_fma(p, u, u);
  }
  const float high = kp_as_f32(kp_as_u32(t) & 0xfffff000u), low = (t - high) * (t + high);
  const float ratio = (t - 2.0f) / (t + 2.0f);
  float p = -0.00149572094f;
  p = kp_fma(p, ratio, 0.001041524f);
  p = kp_fma(p, ratio, 0.0088095786f);
  p = kp_fma(p, ratio, -0.00800532848f);
  p = kp_fma(p, ratio, -0.054236833f);
  p = kp_fma(p, ratio, 0.164050445f);
  p = kp_fma(p, ratio, -0.166029468f);
  p = kp_fma(p, ratio, -0.0927638263f);
  p = kp_fma(p, ratio, 1.27697837f);
  const float erfc = kp_exp_sum(-(high * high), -low) * (p / kp_fma(2.0f, t, 1.0f));
  const float y = half * (u > 0.0f ? 2.0f - erfc : erfc);
  return x == x ? y : x;
}

/// exp(x) - 1 for x <= 0, without cancellation; NaN stays NaN.
KP_DEV float kp_exp_minus_one(float x) {
  const float c = x < -30.0f ? -30.0f : x;  // below, exp(x) is less than half a unit of 1
  const float n = kp_rint(c * 1.44269504f);
  float r = c - n * 0x1.62ep-1f;
  r = r - n * 0x1.0bfbe8p-15f;
  const float e = kp_fma(kp_exp_tail(r), r * r, r);
  const float scale = kp_as_f32((kp_u32)((n == n ? (int)n : 0) + 127) << 23);
  const float y = kp_fma(e, scale, scale - 1.0f);
  return x == x ? y : x;
}

/// `activation` is one of ops.h.
KP_DEV float kp_activate(int activation, float x) {
  if (activation == 0) return x;
  if (activation == 1) return kp_silu(x);
  if (activation == 2) return kp_gelu(x);
  if (activation == 5) return 1.0f / (1.0f + kp_exp(-x));           // sigmoid
  if (activation == 6) return x <= 0.0f ? kp_exp_minus_one(x) : x;  // elu
  const float positive = x < 0.0f ? 0.0f : x;                       // relu
  if (activation == 3) return positive;
  const float e = kp_exp_minus_one(positive * -2.0f);  // relu_tanh
  return -e / (e + 2.0f);
}

/// sin(r)^2 for |r| <= pi / 2.
KP_DEV float kp_sin_squared_near(float r) {
  const float square = r * r;
  float p = 2.60511274e-06f;
  p = kp_fma(p, square, -0.000198094349f);
  p = kp_fma(p, square, 0.00833306648f);
  p = kp_fma(p, square, -0.166666597f);
  const float s = kp_fma(p * square, r, r);
  return s * s;
}

/// The fraction of |x| / pi in (-1/2, 1/2], times pi, from the bits of 1 / pi: for any finite x of 2^20 or
/// more.
KP_DEV float kp_remainder_pi(float x) {
  // 1 / pi = 0.0101000101111100110000011011011100100111...b
  const kp_u32 inverse_pi[] = {0x517cc1b7u, 0x27220a94u, 0xfe13abe8u, 0xfa9a6ee0u,
                               0x6db14accu, 0x9e21c820u, 0xff28b1d5u};
  const int exponent = (int)(kp_as_u32(x) >> 23 & 255) - 150;  // |x| = mantissa * 2^exponent
  const kp_u64 mantissa = (kp_as_u32(x) & 0x7fffffu) | 0x800000u;
  // The first `exponent` bits of 1 / pi give whole multiples; of what follows, three words hold the fraction.
  const int skip = exponent > 0 ? exponent : 0, word = skip >> 5, shift = skip & 31;
  kp_u32 part[3];
  KP_UNROLL
  for (int i = 0; i < 3; ++i) {
    const kp_u64 two = (kp_u64)inverse_pi[word + i] << 32 | inverse_pi[word + i + 1];
    part[i] = (kp_u32)(two >> (32 - shift));
  }
  const kp_u64 low = mantissa * part[1] + (mantissa * part[2] >> 32);
  const kp_u64 high = mantissa * part[0] + (low >> 32);  // 32 bits behind the point
  kp_u64 fraction = high << 32 | (low & 0xffffffffu);
  if (exponent < 0) fraction = fraction >> -exponent | (high >> 32) << (64 + exponent);
  return (float)((double)(kp_i64)fraction * 0x1.921fb54442d18p-63);  // pi / 2^64
}

/// sin(x)^2; NaN and infinity give NaN. The sign of the sine does not matter: the period is pi.
KP_DEV float kp_sin_squared(float x) {
  if (kp_abs(x) <= 1e6f) {
    const float n = kp_rint(x * 0.318309886f);
    float r = kp_fma(-n, 0x1.921fb6p+1f, x);  // pi in three parts; the first subtraction is exact
    r = kp_fma(-n, -0x1.777a5cp-24f, r);
    r = kp_fma(-n, -0x1.ee59dap-49f, r);
    return kp_sin_squared_near(r);
  }
  if (!(kp_abs(x) < kp_infinity())) return x - x;
  return kp_sin_squared_near(kp_remainder_pi(x));
}

/// x + inverse_beta * sin^2(alpha * x).
KP_DEV float kp_snake(float x, float alpha, float inverse_beta) {
  return x + inverse_beta * kp_sin_squared(x * alpha);
}

/// cos and sin of an angle up to 2^30, within some units of 1e-16.
KP_DEV void kp_cos_sin_d(double x, double* cosine, double* sine) {
  const double n = kp_rint_d(x * 0.63661977236758134308);
  double r = kp_fma_d(-n, 1.57079632679489655800, x);
  r = kp_fma_d(-n, 6.12323399573676603587e-17, r);
  const double s = r * r;
  double p = -1.0 / 1307674368000.0;
  p = kp_fma_d(p, s, 1.0 / 6227020800.0);
  p = kp_fma_d(p, s, -1.0 / 39916800.0);
  p = kp_fma_d(p, s, 1.0 / 362880.0);
  p = kp_fma_d(p, s, -1.0 / 5040.0);
  p = kp_fma_d(p, s, 1.0 / 120.0);
  p = kp_fma_d(p, s, -1.0 / 6.0);
  const double sin_r = kp_fma_d(p * s, r, r);
  double q = 1.0 / 20922789888000.0;
  q = kp_fma_d(q, s, -1.0 / 87178291200.0);
  q = kp_fma_d(q, s, 1.0 / 479001600.0);
  q = kp_fma_d(q, s, -1.0 / 3628800.0);
  q = kp_fma_d(q, s, 1.0 / 40320.0);
  q = kp_fma_d(q, s, -1.0 / 720.0);
  q = kp_fma_d(q, s, 1.0 / 24.0);
  const double cos_r = kp_fma_d(q * s, s, 1.0 - 0.5 * s);
  const int quadrant = (int)((kp_i64)n & 3);
  const double c = quadrant & 1 ? sin_r : cos_r, t = quadrant & 1 ? cos_r : sin_r;
  *cosine = quadrant == 1 || quadrant == 2 ? -c : c;
  *sine = quadrant >= 2 ? -t : t;
}

/// The same of a float angle, rounded to float32.
KP_DEV void kp_cos_sin(float angle, float* cosine, float* sine) {
  double c, s;
  kp_cos_sin_d((double)angle, &c, &s);
  *cosine = (float)c, *sine = (float)s;
}

/// log(m * 2^exponent) for m from about 0.7 to 1.4.
KP_DEV double kp_log_parts(double m, int exponent) {
  // log m = 2 atanh(s), s = (m - 1) / (m + 1).
  const double f = m - 1.0, s = f / (f + 2.0), t = s * s;
  double p = 1.0 / 17.0;
  p = kp_fma_d(p, t, 1.0 / 15.0);
  p = kp_fma_d(p, t, 1.0 / 13.0);
  p = kp_fma_d(p, t, 1.0 / 11.0);
  p = kp_fma_d(p, t, 1.0 / 9.0);
  p = kp_fma_d(p, t, 1.0 / 7.0);
  p = kp_fma_d(p, t, 1.0 / 5.0);
  p = kp_fma_d(p, t, 1.0 / 3.0);
  const double log_m = kp_fma_d(2.0 * s * t, p, 2.0 * s);
  return kp_fma_d((double)exponent, 0.69314718055994530942, log_m);
}

KP_DEV kp_u64 bits_of(double v) {
  union {
    double d;
    kp_u64 u;
  } both;
  both.d = v;
  return both.u;
}
KP_DEV double double_of(kp_u64 v) {
  union {
    kp_u64 u;
    double d;
  } both;
  both.u = v;
  return both.d;
}

/// log of a positive normal double, within some units of 1e-16.
KP_DEV double kp_log_d(double x) {
  const kp_u64 bits = bits_of(x) - 0x3fe6600000000000ull;  // mantissa from 0.7 to 1.4
  return kp_log_parts(double_of((bits & 0xfffffffffffffull) + 0x3fe6600000000000ull),
                      (int)((kp_i64)bits >> 52));
}

/// -log(u) of a positive normal float, e of the draws: within 1 unit in the last place. In double: a few
/// candidates a draw, and the draws of all devices agree. Of 1 it is +0.
KP_DEV float kp_minus_log(float u) {
  const kp_u32 bits = kp_as_u32(u) - 0x3f330000u;  // mantissa from about 0.7 to 1.4
  const float m = kp_as_f32((bits & 0x7fffffu) + 0x3f330000u);
  return 0.0f - (float)kp_log_parts((double)m, (int)bits >> 23);
}
