// Codec states behind references that were decoded before, so that the next request of a voice need not
// decode them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace skald::engine {

/// Keyed by content: a voice that changed has other codes. Used under the compute lock.
class ReferenceCache {
 public:
  struct Entry {
    bool official = false;  ///< decoded in the official chunks
    std::vector<int32_t> codes;
    std::vector<std::byte> state;
    std::vector<float> tail;  ///< samples of the last frame
    uint64_t last_use = 0;
  };

  explicit ReferenceCache(int32_t entries) : entries_(static_cast<size_t>(entries)) {}

  /// Null where it is not kept. Valid until the next call.
  const Entry* find(bool official, std::span<const int32_t> codes);
  /// In place of the entry not used for longest.
  void keep(Entry entry);

 private:
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace skald::engine
