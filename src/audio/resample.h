// Changes the sample rate as the official package does: soxr in high quality, length rounded up.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace skald::audio {

/// A stream of mono samples. Any cut of the input gives the same output, ceil(samples * to / from) samples in
/// all.
class Resampler {
 public:
  Resampler(int32_t from, int32_t to);
  ~Resampler();
  Resampler(Resampler&&) noexcept;
  Resampler& operator=(Resampler&&) noexcept;

  /// Appends what is ready.
  void push(std::span<const float> samples, std::vector<float>& out);
  /// Appends the rest; nothing may follow.
  void finish(std::vector<float>& out);

 private:
  struct State;
  void process(const float* samples, size_t count, std::vector<float>& out);
  std::unique_ptr<State> state_;  ///< null where the rates are equal
};

std::vector<float> resample(std::span<const float> samples, int32_t from, int32_t to);

}  // namespace skald::audio
