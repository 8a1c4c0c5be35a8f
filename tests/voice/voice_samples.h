// A voice for the tests of this folder.
#pragma once

#include "skald/voice.h"

namespace skald::test {

inline Voice sample_voice(bool in_context = true) {
  Voice v;
  v.name = "anna";
  for (int i = 0; i < 32; ++i) v.x_vector.push_back(static_cast<float>(i) / 16 - 1);
  if (in_context) {
    for (int i = 0; i < 48; ++i) v.codes.push_back(7 * i % 64);
    v.ref_text = "The words: \"你好\".";
  }
  v.language = "english", v.description = "calm", v.identity = SpeakerIdentity::real;
  v.consent = "Anna agreed, 2026-01-31", v.created = "2026-01-31T12:00:00Z", v.source = "recording";
  v.model = "base 0b6", v.model_hash = std::string(64, 'a'), v.audio_hash = std::string(64, 'b');
  v.seconds = 2.56;
  return v;
}

inline bool same(const Voice& a, const Voice& b) {
  return a.name == b.name && a.x_vector == b.x_vector && a.codes == b.codes && a.ref_text == b.ref_text &&
         a.language == b.language && a.description == b.description && a.identity == b.identity &&
         a.consent == b.consent && a.created == b.created && a.source == b.source && a.model == b.model &&
         a.model_hash == b.model_hash && a.audio_hash == b.audio_hash && a.seconds == b.seconds;
}

}  // namespace skald::test
