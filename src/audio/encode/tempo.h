// Speech made faster or slower without changing its pitch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace skald::audio {

inline constexpr double kLeastSpeed = 0.25, kMostSpeed = 4.0;

/// A stream of samples played `speed` times as fast. Samples out depend on the samples in alone, not on their
/// chunks; there are round(samples / speed) of them. Speed 1 hands samples on untouched. Used from one
/// thread.
class Tempo {
 public:
  /// Throws Error(invalid_argument) for a speed outside kLeastSpeed..kMostSpeed.
  Tempo(uint32_t sample_rate, double speed);
  ~Tempo();
  Tempo(const Tempo&) = delete;
  Tempo& operator=(const Tempo&) = delete;

  /// Appends what is ready; it lags behind by some 0.1 s.
  void add(std::span<const float> samples, std::vector<float>& out);
  /// Appends the rest.
  void finish(std::vector<float>& out);

 private:
  struct Stretch;
  void take(std::vector<float>& out);

  double speed_;
  std::unique_ptr<Stretch> stretch_;  ///< absent at speed 1
  uint64_t in_ = 0, out_ = 0;         ///< samples
};

}  // namespace skald::audio
