// Feeds the .npy parser bytes of any kind: an Error or an array whose size agrees with its shape.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "audio/npy.h"
#include "skald/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  try {
    const auto array = audio::parse_npy({reinterpret_cast<const char*>(data), size}, "fuzz");
    uint64_t elements = 1;
    for (const uint64_t dimension : array.shape) elements *= dimension;
    if (elements != array.size()) std::abort();
    const bool is_float = array.type == audio::NpyType::f4 || array.type == audio::NpyType::f8;
    const size_t read = is_float ? array.floats().size() : array.ints().size();
    if (read != elements) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
