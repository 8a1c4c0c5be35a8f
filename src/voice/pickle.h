// A reader of pickles that executes nothing: it knows plain values, containers and the tensors of torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skald::voice {

/// One value; lists and dictionaries name others by their place in the document.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    list,
    dictionary,
    global,
    storage,
    tensor,
    mark
  };
  Kind kind = Kind::none;
  int64_t integer = 0;  ///< boolean, integer; storage: elements; tensor: offset in the storage
  double real = 0;
  std::string text;  ///< text; global: "module name"; storage: type name; tensor: type name
  std::string key;   ///< storage, tensor: name of the raw data
  std::vector<int32_t>
      items;  ///< list (tuples too); dictionary: key, value, key, value, ...; tensor: its shape
  std::vector<int64_t> shape, stride;  ///< tensor
};

struct PickleDocument {
  std::vector<PickleValue> values;
  int32_t root = 0;

  const PickleValue& at(int32_t index) const { return values[static_cast<size_t>(index)]; }
  /// The value of a dictionary's text key, or null.
  const PickleValue* find(const PickleValue& dictionary, std::string_view key) const;
};

/// Throws Error(voice_invalid) for anything beyond a voice's needs: unknown instructions, names of anything
/// that could be called, cycles, too much of anything.
PickleDocument read_pickle(std::string_view bytes, const std::string& file);

}  // namespace skald::voice
