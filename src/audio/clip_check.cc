// A recording checked and mixed down to mono.
#include "audio/clip_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace skald::audio {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::audio_invalid, "the clip " + why); }

/// Mean, and root mean square around it.
struct Level {
  double mean = 0, rms = 0, peak = 0;
};

template <class At>
Level level_of(size_t count, At&& at) {
  Level level;
  double square = 0;
  for (size_t i = 0; i < count; ++i) {
    const double v = at(i);
    level.mean += v, square += v * v;
    level.peak = std::max(level.peak, std::abs(v));
  }
  const double n = static_cast<double>(count);
  level.mean /= n;
  level.rms = std::sqrt(std::max(0.0, square / n - level.mean * level.mean));
  return level;
}

void check_format(const Recording& r) {
  if (r.channels < 1 || r.channels > kMostChannels)
    refuse(fmt::format("has {} channels, but must have 1 to {}", r.channels, kMostChannels));
  if (r.sample_rate < kLeastRate || r.sample_rate > kMostRate)
    refuse(fmt::format("has a rate of {} Hz, but must have {} to {}; convert it to 24000 Hz", r.sample_rate,
                       kLeastRate, kMostRate));
  if (r.samples.size() % static_cast<size_t>(r.channels) != 0)
    refuse(fmt::format("has {} samples for {} channels", r.samples.size(), r.channels));
  if (r.samples.empty()) refuse("holds no samples");
}

void check_finite(const Recording& r) {
  const auto found =
      std::find_if(r.samples.begin(), r.samples.end(), [](float v) { return !std::isfinite(v); });
  if (found == r.samples.end()) return;
  const auto index = static_cast<size_t>(found - r.samples.begin()),
             channels = static_cast<size_t>(r.channels);
  refuse(fmt::format("has {} as sample {} of channel {}; the file is damaged",
                     std::isnan(*found) ? "NaN" : "infinity", index / channels, index % channels + 1));
}

/// Silence, with the channels named where it is they who make it.
void check_sound(const Recording& r, const Level& mix) {
  if (!std::isfinite(mix.mean) || !std::isfinite(mix.peak))
    refuse("is louder than can be computed with; scale it to within -1 and 1");
  if (mix.rms >= kSilentRms) return;
  const auto channels = static_cast<size_t>(r.channels);
  std::vector<std::string> levels;
  double loudest = 0;
  for (size_t c = 0; c < channels; ++c) {
    const double rms = level_of(r.samples.size() / channels, [&](size_t i) {
                         return double{r.samples[i * channels + c]};
                       }).rms;
    loudest = std::max(loudest, rms);
    levels.push_back(fmt::format("{:.4f}", rms));
  }
  if (loudest >= kSilentRms)
    refuse(fmt::format(
        "is silent once its {} channels are averaged (RMS {:.6f}), as they cancel each other (RMS {}); "
        "invert one of them, or keep one channel alone",
        channels, mix.rms, fmt::join(levels, " and ")));
  refuse(fmt::format("is silent (RMS {:.6f})", mix.rms));
}

/// Share of pieces of 20 ms that are silent.
double silent_share(std::span<const float> mono, int32_t rate) {
  const auto piece = static_cast<size_t>(rate / 50);
  size_t silent = 0, pieces = 0;
  for (size_t at = 0; at + piece <= mono.size(); at += piece, ++pieces)
    silent += level_of(piece, [&](size_t i) { return double{mono[at + i]}; }).rms < kSilentRms;
  return pieces > 0 ? static_cast<double>(silent) / static_cast<double>(pieces) : 0;
}

void warn(const Recording& r, std::span<const float> mono, const Level& mix,
          std::vector<std::string>& warnings) {
  if (mix.rms < kQuietRms)
    warnings.push_back(fmt::format("the clip is quiet (RMS {:.4f}); the voice may be faint", mix.rms));
  if (std::abs(mix.mean) > kOffset)
    warnings.push_back(fmt::format("the clip has an offset of {:.3f}", mix.mean));
  const auto clipped = static_cast<size_t>(
      std::count_if(r.samples.begin(), r.samples.end(), [](float v) { return std::abs(v) >= 0.9999f; }));
  const double peak = level_of(r.samples.size(), [&](size_t i) { return double{r.samples[i]}; }).peak;
  if (peak > 1 || static_cast<double>(clipped) > kClippedShare * static_cast<double>(r.samples.size()))
    warnings.push_back(
        fmt::format("the clip is clipped: {} of {} samples are at or beyond full scale, the largest is "
                    "{:.2f}",
                    clipped, r.samples.size(), peak));
  const double silent = silent_share(mono, r.sample_rate);
  if (silent > 0.5)
    warnings.push_back(fmt::format("{:.0f} % of the clip are silence; cut it to the speech", 100 * silent));
  const size_t tail = std::min(mono.size(), static_cast<size_t>(r.sample_rate / 10));
  const double end = level_of(tail, [&](size_t i) { return double{mono[mono.size() - tail + i]}; }).rms;
  if (silent <= 0.5 && end > 0.5 * mix.rms)
    warnings.push_back(
        fmt::format("the clip ends inside a sound (RMS {:.3f} in its last 0.1 s), which may be heard "
                    "before the speech: end it in a pause, or add silence",
                    end));
}

}  // namespace

std::vector<float> mix_down(std::span<const float> interleaved, int32_t channels) {
  if (channels == 1) return {interleaved.begin(), interleaved.end()};
  std::vector<float> mono;
  const auto width = static_cast<size_t>(channels);
  mono.reserve(interleaved.size() / width);
  for (size_t at = 0; at + width <= interleaved.size(); at += width) {
    float sum = 0;
    for (size_t c = 0; c < width; ++c) sum += interleaved[at + c];
    mono.push_back(sum / static_cast<float>(channels));
  }
  return mono;
}

std::vector<float> check_clip(const Recording& recording, std::vector<std::string>& warnings) {
  check_format(recording);
  check_finite(recording);
  std::vector<float> mono = mix_down(recording.samples, recording.channels);
  const Level mix = level_of(mono.size(), [&](size_t i) { return double{mono[i]}; });
  check_sound(recording, mix);
  warn(recording, mono, mix, warnings);
  return mono;
}

}  // namespace skald::audio
