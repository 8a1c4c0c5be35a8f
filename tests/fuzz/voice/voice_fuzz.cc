// Feeds the reader of voice files bytes of any kind: an Error, or a voice that can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "skald/voice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  try {
    const Voice voice = read_voice({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (voice.codes.size() % 16 != 0) return 0;  // of a codec with other groups
    if (voice_hash(read_voice(write_voice(voice), "fuzz")) != voice_hash(voice)) std::abort();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::voice_invalid) std::abort();
  }
  return 0;
}
