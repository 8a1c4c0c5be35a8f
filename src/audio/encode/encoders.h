// The encoders by coding; make_encoder chooses. Each is the only file that includes its library.
#pragma once

#include "audio/encode/encoder.h"

namespace skald::audio {

std::unique_ptr<Encoder> make_flac_encoder(const EncoderSettings& settings);
std::unique_ptr<Encoder> make_mp3_encoder(const EncoderSettings& settings);
std::unique_ptr<Encoder> make_opus_encoder(const EncoderSettings& settings);
#if SKALD_HAVE_AAC
std::unique_ptr<Encoder> make_aac_encoder(const EncoderSettings& settings);
#endif

}  // namespace skald::audio
