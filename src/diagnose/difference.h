// How far two results of the same calculation are apart, and what is too far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace skald::diagnose {

/// What two devices may differ by in one op on equal inputs and weights: the order of sums and the last bits
/// of functions. Rounding is random, so it hardly moves a norm or a mean; what does is a wrong calculation.
/// 2e-4 finds one that is off by 0.1 % and lies fifty times above what the GPU kernels were measured to
/// differ by from the CPU (docs/compare.md).
struct OpTolerance {
  double element = 2e-4;       ///< of the row's root mean square
  double norm_ratio = 2e-4;    ///< | |b| / |a| - 1 |
  double signed_error = 2e-4;  ///< | sum of (b - a) sign(a) / sum of |a| |
};

/// What was too far.
enum class Measure : uint8_t { none, non_finite, integer, element, norm_ratio, signed_error, stray };
std::string_view measure_name(Measure measure);

/// Values that belong together, usually a row, `a` as expected and `b` as got.
struct Deviation {
  double element = 0;  ///< worst |b - a| / rms(a)
  size_t at = 0;       ///< index of that value
  double norm_ratio = 1, signed_error = 0;
  bool finite = true;  ///< no value of `b` is infinite or NaN where that of `a` is not the same
  double sum_a = 0, sum_signed = 0, squares_a = 0, squares_b = 0;  ///< for sums over many rows
};

/// `least_rms` bounds the scale of elements from below: rows that cancel out are not judged by themselves.
Deviation deviation_of(std::span<const float> a, std::span<const float> b, double least_rms);

/// The first measure that is beyond tolerance: what is systematic before single values.
Measure judge(const Deviation& d, const OpTolerance& tolerance);
/// The deviation's number in that measure, without sign.
double value_of(const Deviation& d, Measure measure);
double limit_of(const OpTolerance& tolerance, Measure measure);

/// Whether the best values of `a` and `b`, at different places, are equal but for rounding: on both, the two
/// candidates lie within `share` of the largest magnitude of `a`.
bool is_tie(std::span<const float> a, std::span<const float> b, size_t best_a, size_t best_b, double share);

double root_mean_square(std::span<const float> values);
/// The largest |b - a|; NaN or infinity where a value of either is no finite number.
double largest_difference(std::span<const float> a, std::span<const float> b);
/// 1 for two zero vectors, 0 for one; NaN where a value is not finite.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace skald::diagnose
