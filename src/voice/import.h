// Readers of other programs' voices. Each takes the bytes of a file that announces its format and throws
// Error(voice_invalid) for whatever it does not expect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "skald/voice.h"

namespace skald::voice {

/// Prompt JSON of qwen3-tts-hip: speaker_embedding, ref_codes (flat), ref_text, icl_mode, x_vector_only_mode.
std::vector<Voice> import_json(std::string_view bytes, const std::string& file);

/// What torch.save makes of voice prompts of the official package: a ZIP with a pickle and raw tensors. The
/// pickle is read by a machine that knows tensors and plain values and nothing that could be called.
std::vector<Voice> import_torch(std::string_view bytes, const std::string& file);

/// CrispASR voice packs: GGUF with architecture qwen3tts.voicepack, float32 vectors and int32 codes.
std::vector<Voice> import_gguf(std::string_view bytes, const std::string& file);

}  // namespace skald::voice
