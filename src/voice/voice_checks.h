// Bounds that every voice keeps, wherever it comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "skald/voice.h"

namespace skald::voice {

inline constexpr int64_t kMostWidth = 1 << 16, kMostFrames = 1 << 14, kMostGroups = 64, kMostCode = 1 << 16;
inline constexpr size_t kMostTextBytes = 1 << 16;
inline constexpr size_t kMostFileBytes = 64 << 20;
/// Of all voices of one file, vectors and codes together: what the largest file holds as 4-byte numbers. More
/// can only come from voices that share their data.
inline constexpr size_t kMostNumbers = kMostFileBytes / 4;

[[noreturn]] void refuse(const std::string& file, const std::string& why);

/// Sizes, finite numbers, codes in range, text where there are codes. Throws Error(voice_invalid) naming
/// `file`.
void check_voice(const Voice& voice, int64_t groups, const std::string& file);

/// `name` made a valid one: other characters become '-'. Empty if nothing is left.
std::string safe_name(std::string_view name);

}  // namespace skald::voice
