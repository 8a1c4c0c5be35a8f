// Byte-level BPE: merges the adjacent pair of lowest rank until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace skald::text {

/// The merge table. O(n log n) in the length of a piece.
class BytePair {
 public:
  /// Id of every single byte; must be set for all 256 before encode.
  std::array<int32_t, 256> byte_ids{};

  /// Adds the next merge (ranks follow the order of the calls). A pair that is known keeps its first rank, as
  /// in the official loader. Ids are not negative.
  void add_merge(int32_t left, int32_t right, int32_t merged);
  void reserve(size_t merges) { merges_.reserve(merges); }

  /// Appends the ids of one piece.
  void encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  const Merge* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge> merges_;  // key: left id in the upper half, right id in the lower
};

}  // namespace skald::text
