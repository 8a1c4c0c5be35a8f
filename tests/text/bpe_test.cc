// Byte-pair merging against a plain quadratic version, and its cost on hostile pieces.
#include "text/byte_pair.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace skald::text {
namespace {

using Ids = std::vector<int32_t>;

/// A random merge list over the bytes 'a'..'d'.
struct RandomMerges {
  BytePair bpe;
  std::map<std::pair<int32_t, int32_t>, std::pair<int, int32_t>> table;  // pair -> rank, merged id

  explicit RandomMerges(std::mt19937& rng) {
    for (int byte = 0; byte < 256; ++byte) bpe.byte_ids[static_cast<size_t>(byte)] = byte;
    int32_t next = 256;
    Ids known{'a', 'b', 'c', 'd'};
    for (int rank = 0; rank < 40; ++rank) {
      const int32_t left = known[rng() % known.size()];
      const int32_t right = known[rng() % known.size()];
      if (table.contains({left, right})) continue;
      table[{left, right}] = {rank, next};
      bpe.add_merge(left, right, next);
      known.push_back(next++);
    }
  }

  /// Scans for the lowest rank, leftmost first, until nothing merges.
  Ids slow(std::string_view piece) const {
    Ids ids(piece.begin(), piece.end());
    while (true) {
      size_t best = ids.size();
      int best_rank = 1 << 30;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto it = table.find({ids[i], ids[i + 1]});
        if (it != table.end() && it->second.first < best_rank) {
          best = i;
          best_rank = it->second.first;
        }
      }
      if (best == ids.size()) return ids;
      ids[best] = table.at({ids[best], ids[best + 1]}).second;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }
};

TEST(BytePair, EqualsThePlainVersion) {
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    const RandomMerges merges(rng);
    for (int i = 0; i < 40; ++i) {
      std::string piece;
      for (size_t length = rng() % 60; length > 0; --length) piece += static_cast<char>('a' + rng() % 4);
      Ids ids;
      merges.bpe.encode(piece, ids);
      EXPECT_EQ(ids, merges.slow(piece)) << piece;
    }
  }
}

TEST(BytePair, TheFirstOfTwoEqualMergesCounts) {
  BytePair bpe;
  for (int byte = 0; byte < 256; ++byte) bpe.byte_ids[static_cast<size_t>(byte)] = byte;
  bpe.add_merge('a', 'b', 300);
  bpe.add_merge('b', 'c', 301);
  bpe.add_merge('a', 'b', 302);
  Ids ids;
  bpe.encode("abc", ids);
  EXPECT_EQ(ids, (Ids{300, 'c'}));
}

TEST(BytePair, AMillionEqualLettersAreNoProblem) {  // a quadratic version would take hours
  BytePair bpe;
  for (int byte = 0; byte < 256; ++byte) bpe.byte_ids[static_cast<size_t>(byte)] = byte;
  int32_t id = 'a';
  for (int32_t next = 256; next < 266; id = next++) bpe.add_merge(id, id, next);
  Ids ids;
  bpe.encode(std::string(1 << 20, 'a'), ids);
  EXPECT_EQ(ids, Ids(1 << 10, 265));
}

TEST(BytePair, AnEmptyPieceGivesNothing) {
  Ids ids;
  BytePair().encode("", ids);
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace skald::text
