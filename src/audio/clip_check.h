// A recording checked and mixed down to mono: what can be told about a reference clip before any model sees
// it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skald/voice.h"

namespace skald::audio {

inline constexpr int32_t kLeastRate = 8000, kMostRate = 192000, kMostChannels = 32;
inline constexpr double kSilentRms = 1e-4;  ///< -80 dB of full scale, offset removed: nothing to hear
inline constexpr double kQuietRms = 0.01;   ///< -40 dB: warned about
inline constexpr double kOffset = 0.01;     ///< mean that is warned about
inline constexpr double kClippedShare = 1e-3;

/// The mean of the channels, summed in order in float32 as in the official path.
std::vector<float> mix_down(std::span<const float> interleaved, int32_t channels);

/// The mono mix of a recording. Nothing is normalised. Throws Error(audio_invalid) with the numbers for rates
/// and channel counts out of range, NaN and infinity, silence, and channels that cancel each other; adds a
/// warning with the number for clips that are quiet, have an offset, are clipped, are mostly silent or end
/// inside a sound.
std::vector<float> check_clip(const Recording& recording, std::vector<std::string>& warnings);

}  // namespace skald::audio
