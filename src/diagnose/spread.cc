// Quantiles.
#include "diagnose/spread.h"

#include <algorithm>

namespace skald::diagnose {

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double share) {
    const double at = share * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {.median = quantile(0.5),
          .low = quantile(0.25),
          .high = quantile(0.75),
          .min = samples.front(),
          .max = samples.back(),
          .samples = samples.size()};
}

}  // namespace skald::diagnose
