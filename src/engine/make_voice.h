// A recording made a voice: checks, resampling, both encoders.
#pragma once

#include <string>
#include <vector>

#include "engine/core.h"
#include "skald/skald.h"

namespace skald::engine {

inline constexpr int32_t kCodecRate = 24000;
inline constexpr int32_t kMostReferenceSeconds = 60;               ///< longer ones are refused
inline constexpr double kShortReference = 3, kLongReference = 30;  ///< seconds; beyond them it is warned

/// See Engine::make_voice.
MadeVoice make_voice(Core& core, const VoiceRequest& request);

/// See Engine::encode.
std::vector<int32_t> encode(Core& core, const SampleSource& source);

/// What is wrong with a transcript of this length for a recording of this length, by the number of characters
/// a second; empty = nothing. A character of Chinese, Japanese or Korean counts for three.
std::string doubt_transcript(const std::string& text, double seconds);

/// The line of the audit about a clone, see EngineOptions::on_audit.
std::string audit_line(const char* event, const std::string& request_id, const Voice& voice);

}  // namespace skald::engine
