// Time stretching by SoundTouch (overlap and add of similar stretches of the signal).
#include "audio/encode/tempo.h"

#include <fmt/format.h>
#include <soundtouch/SoundTouch.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "audio/encode/encoder.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

static_assert(std::is_same_v<soundtouch::SAMPLETYPE, float>, "SoundTouch is built for 16-bit samples");

constexpr size_t kBlock = 480;  // samples handed over at once

}  // namespace

struct Tempo::Stretch {
  explicit Stretch(uint32_t sample_rate, double speed) : blocks(kBlock) {
    touch.setSampleRate(sample_rate);
    touch.setChannels(1);
    touch.setTempo(speed);
    // As SoundTouch's documentation recommends for speech: short stretches keep consonants whole.
    touch.setSetting(SETTING_SEQUENCE_MS, 40);
    touch.setSetting(SETTING_SEEKWINDOW_MS, 15);
    touch.setSetting(SETTING_OVERLAP_MS, 8);
  }
  soundtouch::SoundTouch touch;
  Blocks blocks;
};

Tempo::Tempo(uint32_t sample_rate, double speed) : speed_(speed) {
  if (!(speed >= kLeastSpeed && speed <= kMostSpeed))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("speed is {}, but must be within {}..{}", speed, kLeastSpeed, kMostSpeed));
  if (speed != 1) stretch_ = std::make_unique<Stretch>(sample_rate, speed);
}

Tempo::~Tempo() = default;

void Tempo::add(std::span<const float> samples, std::vector<float>& out) {
  if (!stretch_) {
    out.insert(out.end(), samples.begin(), samples.end());
    return;
  }
  in_ += samples.size();
  stretch_->blocks.add(samples, [&](std::span<const float> block) {
    stretch_->touch.putSamples(block.data(), static_cast<unsigned>(block.size()));
  });
  take(out);
}

void Tempo::finish(std::vector<float>& out) {
  if (!stretch_) return;
  const std::span<const float> rest = stretch_->blocks.rest();
  if (!rest.empty()) stretch_->touch.putSamples(rest.data(), static_cast<unsigned>(rest.size()));
  stretch_->touch.flush();
  take(out);
  const auto wanted = static_cast<uint64_t>(std::llround(static_cast<double>(in_) / speed_));
  out.resize(out.size() + wanted - std::min(out_, wanted), 0.0f);
}

/// Moves what SoundTouch has ready, never beyond the length that the samples so far allow.
void Tempo::take(std::vector<float>& out) {
  const auto most = static_cast<uint64_t>(std::llround(static_cast<double>(in_) / speed_));
  const uint64_t count = std::min<uint64_t>(stretch_->touch.numSamples(), most - std::min(out_, most));
  const size_t start = out.size();
  out.resize(start + count);
  stretch_->touch.receiveSamples(out.data() + start, static_cast<unsigned>(count));
  out_ += count;
}

}  // namespace skald::audio
