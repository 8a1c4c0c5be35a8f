// Feeds the safetensors header parser bytes of any kind: an Error, or tensors that lie inside the file and
// cover it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string>

#include "model/safetensors.h"
#include "skald/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skald;
  try {
    const auto tensors = model::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    uint64_t covered = 0;
    std::set<std::string> names;
    for (const model::TensorEntry& tensor : tensors) {
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
      if (!names.insert(tensor.name).second) std::abort();
      covered += tensor.bytes;
    }
    uint64_t header = 8;
    for (int i = 0; i < 8; ++i) header += static_cast<uint64_t>(data[i]) << (8 * i);
    if (header + covered != size) std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::model_invalid) std::abort();
  }
  return 0;
}
