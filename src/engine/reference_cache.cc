// Codec states behind references.
#include "engine/reference_cache.h"

#include <algorithm>
#include <utility>

namespace skald::engine {

const ReferenceCache::Entry* ReferenceCache::find(bool official, std::span<const int32_t> codes) {
  for (Entry& entry : entries_) {
    if (entry.state.empty() || entry.official != official || !std::ranges::equal(entry.codes, codes))
      continue;
    entry.last_use = ++uses_;
    return &entry;
  }
  return nullptr;
}

void ReferenceCache::keep(Entry entry) {
  if (entries_.empty()) return;
  entry.last_use = ++uses_;
  *std::ranges::min_element(entries_, {}, &Entry::last_use) = std::move(entry);
}

}  // namespace skald::engine
