// Products of quantised rows with panels of integer pairs (docs/decisions/0010). Included once per target.
//
// The sum of a block is an integer and exact, so nothing depends on how it is added up. Lengths are chosen so
// that it fits: by Cauchy and Schwarz it is at most the product of the lengths of the two blocks of integers,
// both below the root of 2^31.
#if defined(SKALD_BACKEND_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_PAIRS_INL_H_
#undef SKALD_BACKEND_CPU_PAIRS_INL_H_
#else
#define SKALD_BACKEND_CPU_PAIRS_INL_H_
#endif

#include "backend/cpu/kernels/product-inl.h"
#include "backend/cpu/pair_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

using DI = hn::RebindToSigned<D>;
using VI = hn::Vec<DI>;
constexpr DI kDi{};

/// sum + x[0] * w[0] + x[1] * w[1] in every lane, which holds two 16-bit integers of x and of w.
HWY_INLINE VI add_pairs(VI sum, VI x, VI w) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::Repartition<int16_t, DI> narrow;
  VI unused = hn::Zero(kDi);
  return hn::ReorderWidenMulAccumulate(kDi, hn::BitCast(narrow, x), hn::BitCast(narrow, w), sum, unused);
#else
  const auto low = [](VI v) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
  const VI first = hn::Mul(low(x), low(w));
  return hn::Add(sum, hn::Add(first, hn::Mul(hn::ShiftRight<16>(x), hn::ShiftRight<16>(w))));
#endif
}

/// kLanes pairs of weights as 16-bit integers.
template <Layout kLayout>
HWY_INLINE VI load_pairs(const std::byte* from) {
  if constexpr (kLayout == Layout::pairs16) return hn::Load(kDi, reinterpret_cast<const int32_t*>(from));
#if HWY_TARGET == HWY_SCALAR
  const auto low = static_cast<int8_t>(from[0]), high = static_cast<int8_t>(from[1]);
  return hn::Set(kDi, static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | static_cast<uint16_t>(low)));
#else
  constexpr hn::Repartition<int16_t, DI> kWide;
  constexpr hn::Rebind<int8_t, decltype(kWide)> kNarrow;
  return hn::BitCast(kDi, hn::PromoteTo(kWide, hn::Load(kNarrow, reinterpret_cast<const int8_t*>(from))));
#endif
}

/// A PairSums of these shapes. A part of a panel at a time, so that the accumulators fit the register file.
template <Layout kLayout, int kRows, int kPanels>
void pair_sums(const float* const* rows, int pairs, const std::byte* weights, int64_t panel_stride,
               const Fetch&, int32_t* sums) {
  for (int p = 0; p < kPanels; ++p)
    for (int v = 0; v < kVectors; ++v) {
      const std::byte* from = weights + p * panel_stride + v * (pair_bytes(kLayout) / kVectors);
      VI acc[kRows];
      for (VI& a : acc) a = hn::Zero(kDi);
      for (int k = 0; k < pairs; ++k, from += pair_bytes(kLayout)) {
        const VI w = load_pairs<kLayout>(from);
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) {
          int32_t pair;
          std::memcpy(&pair, rows[m] + k, sizeof(pair));
          acc[m] = add_pairs(acc[m], hn::Set(kDi, pair), w);
        }
      }
      for (int m = 0; m < kRows; ++m) hn::Store(acc[m], kDi, sums + (m * kPanels + p) * kPanel + v * kLanes);
    }
}

template <Layout kLayout, int... kShape>
constexpr PairTiles pair_tiles(std::integer_sequence<int, kShape...>) {
  return {.of = {pair_sums<kLayout, kShape / kGroup + 1, kShape % kGroup + 1>...}};
}
constexpr PairTiles kPairTiles[] = {
    pair_tiles<Layout::pairs16>(std::make_integer_sequence<int, kPairRows * kGroup>()),
    pair_tiles<Layout::pairs8>(std::make_integer_sequence<int, kPairRows * kGroup>())};

/// Adds the sums of a block, [m][panels][16], to the totals. `scale_row` holds the scales of the m rows,
/// `scales` leads to the scales of the outputs where they are due.
template <bool kFirst>
void add_block(const int32_t* block, int m, const Panels& panels, const float* scale_row,
               const std::byte* before, const std::byte* after, float* sums) {
  const auto scale = [&](const std::byte* of, int p, int v) HWY_ATTR {
    return hn::Load(kD, reinterpret_cast<const float*>(of + p * panels.stride) + v);
  };
  for (int r = 0; r < m; ++r) {
    const V of_row = hn::Set(kD, scale_row[r]);
    for (int p = 0; p < panels.count; ++p)
      for (int v = 0; v < kPanel; v += kLanes, block += kLanes, sums += kLanes) {
        V sum = hn::ConvertTo(kD, hn::Load(kDi, block));
        if (before) sum = hn::Mul(sum, scale(before, p, v));
        sum = kFirst ? hn::Mul(sum, of_row) : hn::MulAdd(sum, of_row, hn::Load(kD, sums));
        if (after) sum = hn::Mul(sum, scale(after, p, v));
        hn::Store(sum, kD, sums);
      }
  }
}

/// What to fetch in a run of pairs that begins `position` bytes after the start of its panels.
Fetch fetch_of(const Panels& panels, int64_t position, bool first_tile) {
  if (!first_tile) return {};
  const int64_t turn = (panels.stride - position % panels.stride - kFetchTile) / pair_bytes(panels.layout);
  return {kFetchTile, static_cast<int>(std::max<int64_t>(turn, 0)), (panels.count - 1) * panels.stride};
}

/// A block of the product for at most kPairRows rows.
struct PairBlock {
  const PairTiles& tiles;
  const Segment& segment;
  const Panels& panels;
  bool first, last;

  void run(const float* const* rows, int m, bool first_tile, float* sums) const {
    const bool wide = panels.layout == Layout::pairs16;
    const int most = wide ? kPairBlock : kScaleInputs;
    const PairSums call = tiles.of[static_cast<size_t>((m - 1) * kGroup + panels.count - 1)];
    float scale_row[kPairRows];
    for (int r = 0; r < m; ++r) scale_row[r] = rows[r][segment.offset];
    alignas(64) int32_t block[kPairRows * kGroup * kPanel];
    for (int done = 0; done < segment.length; done += most) {
      const float* x[kPairRows];
      for (int r = 0; r < m; ++r) x[r] = rows[r] + segment.offset + 1 + done / 2;
      const int64_t start = panel_bytes(panels.layout, segment.weights / kPanel + done);
      const int64_t position = start + (wide ? 0 : kPanel * sizeof(float));
      call(x, (std::min(most, segment.length - done) + 1) / 2, panels.first + position, panels.stride,
           fetch_of(panels, position, first_tile), block);
      const std::byte* const before = wide ? nullptr : panels.first + start;
      const std::byte* const after = wide && last ? panels.first : nullptr;
      (first && done == 0 ? add_block<true> : add_block<false>)(block, m, panels, scale_row, before, after,
                                                                sums);
    }
  }
};

/// `tiles` are those of pairs16 and of pairs8.
void pair_product_with(const PairTiles* tiles, const float* const* rows, int m, const Segment* segments,
                       int segment_count, const Panels& panels, float* sums) {
  const PairTiles& of_layout = tiles[panels.layout == Layout::pairs8];
  if (const PairRow call = of_layout.row[static_cast<size_t>(panels.count - 1)]; m == 1 && call)
    return call(rows[0], segments, segment_count, panels, sums);
  for (int s = 0; s < segment_count; ++s) {
    const PairBlock block{of_layout, segments[s], panels, s == 0, s + 1 == segment_count};
    for (int r = 0; r < m; r += kPairRows)
      block.run(rows + r, std::min(kPairRows, m - r), r == 0, sums + int64_t{r} * panels.count * kPanel);
  }
}

void pair_product(const float* const* rows, int m, const Segment* segments, int segment_count,
                  const Panels& panels, float* sums) {
  pair_product_with(kPairTiles, rows, m, segments, segment_count, panels, sums);
}

#if HWY_TARGET == HWY_AVX3
void pair_product_vnni(const float* const* rows, int m, const Segment* segments, int segment_count,
                       const Panels& panels, float* sums) {
  pair_product_with(vnni_pair_tiles(), rows, m, segments, segment_count, panels, sums);
}
#endif

HWY_INLINE float largest_magnitude(const float* x, int n) {
  V most[kVectors];
  for (V& m : most) m = hn::Zero(kD);
  int i = 0;
  for (; i + kPanel <= n; i += kPanel)
    for (int v = 0; v < kVectors; ++v) most[v] = hn::Max(most[v], hn::Abs(hn::LoadU(kD, x + i + v * kLanes)));
  alignas(64) float lanes[kPanel];
  for (int v = 0; v < kVectors; ++v) hn::Store(most[v], kD, lanes + v * kLanes);
  float largest = *std::max_element(lanes, lanes + kPanel);
  for (; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// to[i] = x[i] * factor to the nearest integer, ties to even.
HWY_INLINE void round_block(const float* x, int n, float factor, int16_t* to) {
  const auto round = [factor](const float* from, int16_t* out) HWY_ATTR {
    constexpr hn::Rebind<int16_t, D> kNarrow;
    for (int v = 0; v < kPanel; v += kLanes) {
      const VI whole = hn::NearestInt(hn::Mul(hn::LoadU(kD, from + v), hn::Set(kD, factor)));
      hn::StoreU(hn::DemoteTo(kNarrow, whole), kNarrow, out + v);
    }
  };
  int i = 0;
  for (; i + kPanel <= n; i += kPanel) round(x + i, to + i);
  if (i == n) return;
  float tail[kPanel] = {};
  int16_t rounded[kPanel];
  std::copy(x + i, x + n, tail);
  round(tail, rounded);
  std::copy_n(rounded, (n - i + 1) / 2 * 2, to + i);
}

void quantise(const float* x, int n, float* words) {
  for (int first = 0; first < n; first += kPairBlock) {
    const int count = std::min(kPairBlock, n - first);
    const float square = dot(x + first, x + first, count);
    const float largest = largest_magnitude(x + first, count);
    float scale = 0, factor = 0;
    if (!(square < std::numeric_limits<float>::infinity()))
      scale = std::numeric_limits<float>::quiet_NaN();
    else if (largest >= kLeastPair)
      factor = std::min(kPairLength / std::sqrt(square), kMostPair / largest), scale = 1.0f / factor;
    *words++ = scale;
    auto* const to = reinterpret_cast<int16_t*>(words);
    if (factor > 0)
      round_block(x + first, count, factor, to);
    else
      std::fill_n(to, (count + 1) / 2 * 2, int16_t{0});
    words += (count + 1) / 2;
  }
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
