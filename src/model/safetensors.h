// The header of one safetensors file, parsed from memory and strictly checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace skald::model {

/// One tensor as its header describes it. Types that skald does not know pass with whatever length they
/// declare.
struct TensorEntry {
  std::string name;
  std::string type;  ///< as written: "BF16", "F32", ...
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0;  ///< from the start of the file
};

/// Parses the header of a whole file in memory. Guarantees of the result: every range lies inside the file,
/// ranges cover the data without overlap or gap, names are unique, shape times type equals the length. Throws
/// Error(model_invalid) with `file`, tensor, byte offset, expected and found. `metadata`, where given,
/// receives what stands under __metadata__.
std::vector<TensorEntry> parse_safetensors(std::span<const std::byte> bytes, const std::string& file,
                                           std::map<std::string, std::string>* metadata = nullptr);

}  // namespace skald::model
