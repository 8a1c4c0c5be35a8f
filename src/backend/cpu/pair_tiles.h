// The inner loops of products of integer pairs: the part that instruction sets do differently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace skald::backend::cpu {

constexpr int kPairRows = 6;  ///< most rows of one tile

/// Bytes of one pair of inputs of a panel.
constexpr int64_t pair_bytes(Layout layout) { return kPanel * (layout == Layout::pairs16 ? 4 : 2); }

/// What may be fetched into a cache while pair k of a panel is worked on: the line `ahead` bytes further,
/// from pair `turn` on that of the panel which follows the group, `leap` bytes further still. 0 ahead =
/// nothing.
struct Fetch {
  int64_t ahead = 0;
  int turn = 0;
  int64_t leap = 0;
};

/// sums[row][panel][16] of `pairs` pairs: rows[r][k] holds the 16-bit integers of pair k, panel p has its
/// weights from `weights` + p * panel_stride on.
using PairSums = void (*)(const float* const* rows, int pairs, const std::byte* weights, int64_t panel_stride,
                          const Fetch& fetch, int32_t* sums);

/// The whole product of one row, which waits for memory alone, as pair_product would do it.
using PairRow = void (*)(const float* row, const Segment* segments, int segment_count, const Panels& panels,
                         float* sums);

struct PairTiles {
  std::array<PairSums, kPairRows * kGroup> of;  ///< by shape: (rows - 1) * kGroup + panels - 1
  std::array<PairRow, kGroup> row = {};         ///< by panels - 1; null = by `of`
};

constexpr int64_t kFetchRow = 1024;   ///< bytes of each panel fetched ahead for one row,
constexpr int64_t kFetchTile = 2048;  ///< and for the first tile of several

/// Those of pairs16 and of pairs8 with AVX512_VNNI, or null where the processor or the build lacks it.
const PairTiles* vnni_pair_tiles();

}  // namespace skald::backend::cpu
