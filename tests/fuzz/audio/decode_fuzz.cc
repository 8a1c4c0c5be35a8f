// Feeds the decoder files of any kind: an Error, or samples within the limits. The code of libsndfile itself
// is not instrumented, so the fuzzer sees its crashes, not its branches.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "audio/clip_check.h"
#include "audio/decode.h"

// libsndfile 1.2 forgets 6 KB of some Ogg files that it refuses as Vorbis.
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init\n"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  constexpr double kSeconds = 2;
  try {
    const auto reader = audio::AudioReader::parse({reinterpret_cast<const char*>(data), size}, "fuzz",
                                                  {.bytes = 1 << 20, .seconds = kSeconds});
    const Recording recording = audio::read_all(*reader);
    if (recording.samples.size() % static_cast<size_t>(recording.channels) != 0) std::abort();
    if (static_cast<double>(recording.samples.size()) > kSeconds * recording.sample_rate * recording.channels)
      std::abort();
    std::vector<std::string> warnings;
    audio::check_clip(recording, warnings);
  } catch (const Error&) {
  }
  return 0;
}
