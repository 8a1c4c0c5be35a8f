// The two kinds of stream over one utterance.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/utterance.h"
#include "skald/skald.h"

namespace skald::engine {

/// The request with what the engine fills in: seed and request_id where the caller left them open, and the
/// voice that is meant by its name. Throws Error(unknown_voice).
SpeechRequest completed_request(const Core& core, SpeechRequest request);

/// What a model in a folder offers, from its configuration alone. Throws Error(model_not_found),
/// Error(model_invalid).
ModelInfo read_model_info(const std::filesystem::path& folder);

/// The engine over a loaded model.
std::unique_ptr<Engine> make_engine(std::shared_ptr<Core> core);

/// Checks the request, whose seed and request_id must be set, and takes a slot.
std::unique_ptr<SpeechStream> make_speech_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                                 const Diagnosis* diagnosis);
std::unique_ptr<TextStream> make_text_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                             const Diagnosis* diagnosis);

}  // namespace skald::engine
