// Products of integer pairs with AVX512_VNNI: two multiply-adds a lane in one instruction.
#include "backend/cpu/pair_tiles.h"

#include <hwy/base.h>

#if HWY_ARCH_X86
#include <immintrin.h>

#include <cstring>
#include <utility>

// What follows is compiled for these processors alone; the file has no inline function that others share.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")

namespace skald::backend::cpu {
namespace {

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

template <Layout kLayout, int... kShape>
constexpr PairTiles pair_tiles(std::integer_sequence<int, kShape...>) {
  return {{pair_sums<kLayout, kShape / kGroup + 1, kShape % kGroup + 1>...}};
}

constexpr PairTiles kTiles[] = {
    pair_tiles<Layout::pairs16>(std::make_integer_sequence<int, kPairRows * kGroup>()),
    pair_tiles<Layout::pairs8>(std::make_integer_sequence<int, kPairRows * kGroup>())};

}  // namespace
}  // namespace skald::backend::cpu

HWY_POP_ATTRIBUTES

namespace skald::backend::cpu {
const PairTiles* vnni_pair_tiles() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") ? kTiles : nullptr;
}
}  // namespace skald::backend::cpu

#else

namespace skald::backend::cpu {
const PairTiles* vnni_pair_tiles() { return nullptr; }
}  // namespace skald::backend::cpu

#endif
