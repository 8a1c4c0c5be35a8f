// The mel filter bank, computed in double precision and rounded once.
#include "model/mel_filters.h"

#include <algorithm>
#include <cmath>

namespace skald::model {
namespace {

// Linear below 1 kHz, logarithmic above.
constexpr double kHertzPerMel = 200.0 / 3, kBreak = 1000.0, kBreakMel = kBreak / kHertzPerMel;
const double kStep = std::log(6.4) / 27;

double to_mel(double hertz) {
  return hertz < kBreak ? hertz / kHertzPerMel : kBreakMel + std::log(hertz / kBreak) / kStep;
}
double to_hertz(double mel) {
  return mel < kBreakMel ? mel * kHertzPerMel : kBreak * std::exp((mel - kBreakMel) * kStep);
}

}  // namespace

std::vector<float> mel_filters(int32_t bands, int32_t fft, int32_t sample_rate) {
  const double top = to_mel(sample_rate / 2.0);
  std::vector<double> corners;
  for (int32_t i = 0; i < bands + 2; ++i) corners.push_back(to_hertz(top * i / (bands + 1)));
  std::vector<float> weights;
  for (int32_t band = 0; band < bands; ++band) {
    const double low = corners[static_cast<size_t>(band)], middle = corners[static_cast<size_t>(band) + 1],
                 high = corners[static_cast<size_t>(band) + 2];
    for (int32_t bin = 0; bin <= fft / 2; ++bin) {
      const double hertz = static_cast<double>(bin) * sample_rate / fft;
      const double side = std::min((hertz - low) / (middle - low), (high - hertz) / (high - middle));
      weights.push_back(static_cast<float>(std::max(0.0, side) * 2 / (high - low)));
    }
  }
  return weights;
}

}  // namespace skald::model
