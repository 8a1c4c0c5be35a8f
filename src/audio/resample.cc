// Changes the sample rate with soxr.
#include "audio/resample.h"

#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "skald/error.h"

namespace skald::audio {

struct Resampler::State {
  soxr_t soxr = nullptr;
  double ratio = 1;
  int64_t taken = 0, given = 0;  ///< samples in and out so far
  State(int32_t from_rate, int32_t to_rate) : ratio(static_cast<double>(to_rate) / from_rate) {
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_error_t error = nullptr;
    soxr = soxr_create(from_rate, to_rate, 1, &error, nullptr, &quality, nullptr);
    if (error) throw Error(ErrorCode::internal, std::string("the resampler cannot be set up: ") + error);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { soxr_delete(soxr); }
  /// Samples that belong to the input so far, in the reference's arithmetic.
  int64_t due() const { return static_cast<int64_t>(std::ceil(static_cast<double>(taken) * ratio)); }
};

Resampler::Resampler(int32_t from, int32_t to) {
  if (from != to) state_ = std::make_unique<State>(from, to);
}
Resampler::~Resampler() = default;
Resampler::Resampler(Resampler&&) noexcept = default;
Resampler& Resampler::operator=(Resampler&&) noexcept = default;

/// Feeds samples, or the end for a null pointer.
void Resampler::process(const float* samples, size_t count, std::vector<float>& out) {
  State& s = *state_;
  std::vector<float> buffer(4096);
  for (bool more = true; more;) {
    size_t used = 0, made = 0;
    const soxr_error_t error =
        soxr_process(s.soxr, samples, count, &used, buffer.data(), buffer.size(), &made);
    if (error) throw Error(ErrorCode::internal, std::string("the resampler failed: ") + error);
    // The filter may run a sample past the end of the clip; what is due was settled by the input.
    const auto kept =
        static_cast<size_t>(std::clamp<int64_t>(s.due() - s.given, 0, static_cast<int64_t>(made)));
    out.insert(out.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(kept));
    s.given += static_cast<int64_t>(kept);
    if (samples) samples += used, count -= used;
    more = made == buffer.size() || (samples && count > 0);
  }
}

void Resampler::push(std::span<const float> samples, std::vector<float>& out) {
  if (!state_) {
    out.insert(out.end(), samples.begin(), samples.end());
    return;
  }
  if (samples.empty()) return;  // a null pointer would mean the end
  state_->taken += static_cast<int64_t>(samples.size());
  process(samples.data(), samples.size(), out);
}

void Resampler::finish(std::vector<float>& out) {
  if (!state_) return;
  process(nullptr, 0, out);
  out.insert(out.end(), static_cast<size_t>(state_->due() - state_->given), 0.0f);
  state_->given = state_->due();
}

std::vector<float> resample(std::span<const float> samples, int32_t from, int32_t to) {
  Resampler resampler(from, to);
  std::vector<float> out;
  resampler.push(samples, out);
  resampler.finish(out);
  return out;
}

}  // namespace skald::audio
