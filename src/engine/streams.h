// The two kinds of stream over one utterance.
#pragma once

#include <memory>

#include "engine/utterance.h"
#include "skald/skald.h"

namespace skald::engine {

/// Checks the request, whose seed and request_id must be set, and takes a slot.
std::unique_ptr<SpeechStream> make_speech_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                                 const Diagnosis* diagnosis);
std::unique_ptr<TextStream> make_text_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                             const Diagnosis* diagnosis);

}  // namespace skald::engine
