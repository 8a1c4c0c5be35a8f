// Median and spread of a few measurements.
#pragma once

#include <cstddef>
#include <vector>

namespace skald::diagnose {

struct Spread {
  double median = 0, low = 0, high = 0;  ///< low and high: quartiles
  double min = 0, max = 0;
  size_t samples = 0;
};

/// Quantiles are interpolated; all zero without samples.
Spread spread_of(std::vector<double> samples);

}  // namespace skald::diagnose
