// Products of integer pairs with AVX512_VNNI: two multiply-adds a lane in one instruction.
#include "backend/cpu/pair_tiles.h"

#include <hwy/base.h>

#if HWY_ARCH_X86
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace skald::backend::cpu {
namespace {

// What follows is compiled for these processors alone; the file has no inline function that others share.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")

template <Layout kLayout>
inline __m512i load_pairs(const std::byte* from) {
  if constexpr (kLayout == Layout::pairs16) return _mm512_load_si512(from);
  return _mm512_cvtepi8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

template <Layout kLayout, int kRows, int kPanels>
void pair_sums(const float* const* rows, int pairs, const std::byte* weights, int64_t panel_stride,
               const Fetch& fetch, int32_t* sums) {
  const float* x[kRows];
  __m512i acc[kRows][kPanels];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    x[m] = rows[m];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) acc[m][p] = _mm512_setzero_si512();
  }
  for (int k = 0; k < pairs; ++k, weights += pair_bytes(kLayout)) {
    __m512i w[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) w[p] = load_pairs<kLayout>(weights + p * panel_stride);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      int32_t pair;
      std::memcpy(&pair, x[m] + k, sizeof(pair));
      const __m512i broadcast = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) acc[m][p] = _mm512_dpwssd_epi32(acc[m][p], broadcast, w[p]);
    }
    if (fetch.ahead == 0 || (kLayout == Layout::pairs8 && k % 2 != 0)) continue;
    const std::byte* const line = weights + fetch.ahead + (k < fetch.turn ? 0 : fetch.leap);
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      _mm_prefetch(reinterpret_cast<const char*>(line + p * panel_stride), _MM_HINT_T0);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) _mm512_store_si512(sums + (m * kPanels + p) * kPanel, acc[m][p]);
}

/// acc[p] += pair k of the row times that of panel p.
template <Layout kLayout, int kPanels>
inline void add_pair(const float* x, int k, const std::byte* weights, int64_t panel_stride,
                     __m512i (&acc)[kPanels]) {
  int32_t pair;
  std::memcpy(&pair, x + k, sizeof(pair));
  const __m512i broadcast = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p)
    acc[p] = _mm512_dpwssd_epi32(acc[p], broadcast,
                                 load_pairs<kLayout>(weights + p * panel_stride + k * pair_bytes(kLayout)));
}

/// Few branches and no call in a block, so that there are always lines on their way.
template <Layout kLayout, int kPanels>
void pair_row(const float* row, const Segment* segments, int segment_count, const Panels& panels,
              float* sums) {
  constexpr bool kWide = kLayout == Layout::pairs16;
  constexpr int kRun = kWide ? kPairBlock : kScaleInputs, kStep = 8;
  constexpr int kLines = static_cast<int>(kStep * pair_bytes(kLayout) / 64);  // of each panel in a step
  const int64_t stride = panels.stride;
  __m512 total[kPanels];
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) total[p] = _mm512_setzero_ps();
  for (int s = 0; s < segment_count; ++s)
    for (int done = 0; done < segments[s].length; done += kRun) {
      const float* const x = row + segments[s].offset + 1 + done / 2;
      const std::byte* const scales =
          panels.first + panel_bytes(kLayout, segments[s].weights / kPanel + done);
      const std::byte* weights = scales + (kWide ? 0 : kPanel * sizeof(float));
      const int pairs = (std::min(kRun, segments[s].length - done) + 1) / 2;
      __m512i acc[kPanels];
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) acc[p] = _mm512_setzero_si512();
      int k = 0;
      for (; k + kStep <= pairs; k += kStep) {
        const std::byte* line = weights + k * pair_bytes(kLayout) + kFetchRow;
        if ((line - panels.first) % stride < kFetchRow) line += (kPanels - 1) * stride;
#pragma GCC unroll 8
        for (int j = 0; j < kStep; ++j) {
          add_pair<kLayout, kPanels>(x, k + j, weights, stride, acc);
          if (j % (kStep / kLines) == 0)
#pragma GCC unroll 8
            for (int p = 0; p < kPanels; ++p)
              _mm_prefetch(reinterpret_cast<const char*>(line + j / (kStep / kLines) * 64 + p * stride),
                           _MM_HINT_T0);
        }
      }
      for (; k < pairs; ++k) add_pair<kLayout, kPanels>(x, k, weights, stride, acc);
      const __m512 of_row = _mm512_set1_ps(row[segments[s].offset]);
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        __m512 sum = _mm512_maskz_cvtepi32_ps(0xFFFF, acc[p]);  // GCC 12 warns of the plain one
        if (!kWide) sum = _mm512_mul_ps(sum, _mm512_load_ps(scales + p * stride));
        total[p] = _mm512_fmadd_ps(sum, of_row, total[p]);
      }
    }
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p)
    _mm512_store_ps(sums + p * kPanel,
                    kWide ? _mm512_mul_ps(total[p], _mm512_load_ps(panels.first + p * stride)) : total[p]);
}

template <Layout kLayout, int... kShape>
constexpr PairTiles pair_tiles(std::integer_sequence<int, kShape...>) {
  return {.of = {pair_sums<kLayout, kShape / kGroup + 1, kShape % kGroup + 1>...},
          .row = {pair_row<kLayout, 1>, pair_row<kLayout, 2>, pair_row<kLayout, 3>, pair_row<kLayout, 4>}};
}

constexpr PairTiles kTiles[] = {
    pair_tiles<Layout::pairs16>(std::make_integer_sequence<int, kPairRows * kGroup>()),
    pair_tiles<Layout::pairs8>(std::make_integer_sequence<int, kPairRows * kGroup>())};

HWY_POP_ATTRIBUTES

}  // namespace

const PairTiles* vnni_pair_tiles() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") ? kTiles : nullptr;
}
}  // namespace skald::backend::cpu

#else

namespace skald::backend::cpu {
const PairTiles* vnni_pair_tiles() { return nullptr; }
}  // namespace skald::backend::cpu

#endif
