// Prompt prefixes of voices that were spoken with before: their keys and values, kept to be copied instead of
// computed again. A row's keys and values depend on the rows up to it alone, so the copy equals the
// computation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "model/prompt.h"
#include "model/transformer.h"

namespace skald::model {

class PrefixCache {
 public:
  /// Keeps up to `entries` prefixes of at most `rows` rows; 0 entries = off. Memory is reserved here.
  PrefixCache(backend::Backend& device, const DecoderStack& stack, int32_t slots, int32_t entries,
              int32_t rows);

  /// Copies the prompt's prefix into the slot's cache if it is known; returns its rows, 0 = it is not.
  int32_t restore(int32_t slot, const Prompt& prompt, std::span<const float> x_vector);
  /// Keeps the prefix of a prompt that stands in the slot's cache, in place of the entry not used for
  /// longest.
  void save(int32_t slot, const Prompt& prompt, std::span<const float> x_vector);

 private:
  struct Entry {
    std::vector<PromptRow> rows;
    std::vector<float> x_vector;
    uint64_t last_use = 0;
  };

  std::span<const PromptRow> prefix_of(const Prompt& prompt) const;
  void copy(backend::Program program, int32_t to, size_t rows);

  backend::Backend& device_;
  int32_t rows_;
  KvStore store_;
  backend::Buffer lane_slot_, lane_count_;
  std::vector<backend::Program> save_;     ///< of every slot
  std::vector<backend::Program> restore_;  ///< of every entry
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace skald::model
