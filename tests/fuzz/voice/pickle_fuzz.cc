// Feeds the pickle machine bytes of any kind, past the checksums of the archive around it: an Error, or a
// document whose every reference leads somewhere.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "skald/error.h"
#include "voice/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  try {
    const auto document = voice::read_pickle({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto count = static_cast<int32_t>(document.values.size());
    if (document.root < 0 || document.root >= count) std::abort();
    for (const voice::PickleValue& value : document.values)
      for (const int32_t item : value.items)
        if (item < 0 || item >= count) std::abort();
    document.find(document.at(document.root), "items");
  } catch (const Error& e) {
    if (e.code() != ErrorCode::voice_invalid) std::abort();
  }
  return 0;
}
