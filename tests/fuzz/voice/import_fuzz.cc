// Feeds the importers files of any kind: an Error, or voices within their bounds.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "skald/voice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  try {
    const auto voices = import_voices({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (voices.empty()) std::abort();
    for (const Voice& voice : voices) {
      if (voice.x_vector.empty() || voice.codes.empty() != voice.ref_text.empty()) std::abort();
      if (!voice.name.empty() && !valid_voice_name(voice.name) && !voice.is_clone()) std::abort();
      for (const float x : voice.x_vector)
        if (!std::isfinite(x)) std::abort();
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::voice_invalid) std::abort();
  }
  return 0;
}
