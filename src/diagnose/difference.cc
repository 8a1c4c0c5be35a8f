// Measures of difference.
#include "diagnose/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace skald::diagnose {
namespace {

/// Below that a row counts as zero: noise of noise.
constexpr double kLeastRms = 1e-20;

bool same_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

std::string_view measure_name(Measure measure) {
  switch (measure) {
    case Measure::none: return "none";
    case Measure::non_finite: return "non_finite";
    case Measure::integer: return "integer";
    case Measure::element: return "element";
    case Measure::norm_ratio: return "norm_ratio";
    case Measure::signed_error: return "signed_error";
    case Measure::stray: return "stray";
  }
  return "none";
}

double root_mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float v : values)
    if (std::isfinite(v)) sum += double{v} * v;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

Deviation deviation_of(std::span<const float> a, std::span<const float> b, double least_rms) {
  Deviation d;
  double worst = 0, sum_a = 0, sum_signed = 0, squares_a = 0, squares_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (same_value(a[i], b[i]) || !d.finite) continue;
      d.finite = false, d.at = i;
      continue;
    }
    const double error = y - x;
    if (std::abs(error) > worst && d.finite) worst = std::abs(error), d.at = i;
    sum_a += std::abs(x);
    sum_signed += x < 0 ? -error : error;
    squares_a += x * x, squares_b += y * y;
  }
  d.sum_a = sum_a, d.sum_signed = sum_signed, d.squares_a = squares_a, d.squares_b = squares_b;
  const double n = static_cast<double>(std::max<size_t>(a.size(), 1));
  const double scale = std::max({std::sqrt(squares_a / n), least_rms, kLeastRms});
  d.element = worst / scale;
  // Sums of rows below the scale are left to the elements.
  if (std::sqrt(squares_a / n) < scale) return d;
  d.norm_ratio = std::sqrt(squares_b / squares_a);
  d.signed_error = sum_signed / sum_a;
  return d;
}

Measure judge(const Deviation& d, const OpTolerance& t) {
  if (!d.finite) return Measure::non_finite;
  for (const Measure m : {Measure::norm_ratio, Measure::signed_error, Measure::element})
    if (!(value_of(d, m) <= limit_of(t, m))) return m;
  return Measure::none;
}

double value_of(const Deviation& d, Measure measure) {
  switch (measure) {
    case Measure::element: return d.element;
    case Measure::norm_ratio: return std::abs(d.norm_ratio - 1);
    case Measure::signed_error: return std::abs(d.signed_error);
    default: return 0;
  }
}

double limit_of(const OpTolerance& t, Measure measure) {
  switch (measure) {
    case Measure::element: return t.element;
    case Measure::norm_ratio: return t.norm_ratio;
    case Measure::signed_error: return t.signed_error;
    default: return 0;
  }
}

bool is_tie(std::span<const float> a, std::span<const float> b, size_t best_a, size_t best_b, double share) {
  double largest = 0;
  for (const float v : a) largest = std::max(largest, std::abs(double{v}));
  const double gap_a = double{a[best_a]} - a[best_b], gap_b = double{b[best_b]} - b[best_a];
  return gap_a <= share * largest && gap_b <= share * largest;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{b[i]} - a[i]);
    if (std::isnan(difference)) return difference;  // comparing would lose it
    largest = std::max(largest, difference);
  }
  return largest;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  if (aa == 0 && bb == 0) return 1;
  if (aa == 0 || bb == 0) return 0;
  return ab / std::sqrt(aa * bb);
}

}  // namespace skald::diagnose
