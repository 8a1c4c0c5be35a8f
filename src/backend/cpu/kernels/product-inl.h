// Matrix product of a few rows with panels of 16 columns, and what follows it. Included once per target.
#if defined(SKALD_BACKEND_CPU_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_PRODUCT_INL_H_
#undef SKALD_BACKEND_CPU_PRODUCT_INL_H_
#else
#define SKALD_BACKEND_CPU_PRODUCT_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

// Accumulators that fit the register file beside the operands: 32 registers with AVX-512 and NEON, else 16.
constexpr int kRegisters = (HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64) ? 32 : 16;
constexpr int kAccumulators = kRegisters == 32 ? 24 : 12;
constexpr int kTileRows = std::max(1, std::min(6, kAccumulators / kVectors));

/// Panels of a tile of `rows` rows.
constexpr int tile_panels(int rows) {
  const int most = kAccumulators / (rows * kVectors);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

/// One block of inputs of kRows rows and kPanels panels; `add` continues the totals in `sums`.
template <int kRows, int kPanels>
HWY_INLINE void tile(const float* const* rows, const Segment* segments, int segment_count, const float* panel,
                     int64_t panel_stride, bool add, float* sums, int64_t sums_stride) {
  V acc[kRows][kPanels][kVectors];
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[m][p][v] = hn::Zero(kD);
  for (int s = 0; s < segment_count; ++s) {
    const float* x[kRows];
#pragma GCC unroll 16
    for (int m = 0; m < kRows; ++m) x[m] = rows[m] + segments[s].offset;
    const float* weights = panel + segments[s].weights;
    const int length = segments[s].length;
    for (int k = 0; k < length; ++k, weights += kPanel) {
      V w[kPanels][kVectors];
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) w[p][v] = hn::Load(kD, weights + p * panel_stride + v * kLanes);
#pragma GCC unroll 16
      for (int m = 0; m < kRows; ++m) {
        const V broadcast = hn::Set(kD, x[m][k]);
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) acc[m][p][v] = hn::MulAdd(broadcast, w[p][v], acc[m][p][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        float* to = sums + m * sums_stride + p * kPanel + v * kLanes;
        hn::Store(add ? hn::Add(hn::Load(kD, to), acc[m][p][v]) : acc[m][p][v], kD, to);
      }
}

/// A tile of exactly kRows rows over all panels of the group.
template <int kRows>
HWY_NOINLINE void tile_row(const float* const* rows, const Segment* segments, int segment_count,
                           const float* panel, int64_t panel_stride, int panels, bool add, float* sums,
                           int64_t sums_stride) {
  constexpr int kWide = tile_panels(kRows);
  int p = 0;
  for (; p + kWide <= panels; p += kWide)
    tile<kRows, kWide>(rows, segments, segment_count, panel + p * panel_stride, panel_stride, add,
                       sums + p * kPanel, sums_stride);
  for (; p < panels; ++p)
    tile<kRows, 1>(rows, segments, segment_count, panel + p * panel_stride, panel_stride, add,
                   sums + p * kPanel, sums_stride);
}

using TileRow = void (*)(const float* const*, const Segment*, int, const float*, int64_t, int, bool, float*,
                         int64_t);

template <int... kRows>
constexpr TileRow tile_table_entry(int rows, std::integer_sequence<int, kRows...>) {
  TileRow found = nullptr;
  ((rows == kRows + 1 ? void(found = tile_row<kRows + 1>) : void()), ...);
  return found;
}

void product(const float* const* rows, int m, const Segment* segments, int segment_count, const float* panel,
             int64_t panel_stride, int panels, float* sums) {
  const int64_t sums_stride = int64_t{panels} * kPanel;
  bool add = false;
  for (int s = 0; s < segment_count;) {
    int end = s;
    while (!segments[end++].ends_block) {
    }
    // The block of weights stays in the first or second level cache while all rows pass over it.
    for (int r = 0; r < m; r += kTileRows) {
      const int count = std::min(kTileRows, m - r);
      const TileRow call = tile_table_entry(count, std::make_integer_sequence<int, kTileRows>());
      call(rows + r, segments + s, end - s, panel, panel_stride, panels, add, sums + r * sums_stride,
           sums_stride);
    }
    add = true;
    s = end;
  }
}

template <Activation kActivation>
HWY_INLINE V activate(V x) {
  if constexpr (kActivation == Activation::silu) return silu(x);
  if constexpr (kActivation == Activation::gelu_erf) return gelu_erf(x);
  return x;
}

template <Activation kActivation>
void finish_rows(const float* sums, int64_t stride, int m, int columns, const Epilogue& e,
                 const float* const* residual, float* const* out) {
  const auto at = [](const float* x, int i) { return x ? x + i : nullptr; };
  const bool scaled = e.scale != nullptr, clipped = e.clip > 0;
  for (int r = 0; r < m; ++r) {
    const float* add = residual ? residual[r] : nullptr;
    for_strips(columns, [&](int i, int length) HWY_ATTR {
      map_strip(
          length, out[r] + i,
          [&](V x, V bias, V scale, V kept) HWY_ATTR {
            V y = activate<kActivation>(hn::Add(x, bias));
            if (scaled) y = hn::Mul(y, scale);
            if (add) y = hn::Add(kept, y);
            // NaN must survive: the comparisons are false for it.
            if (clipped) {
              const V limit = hn::Set(kD, e.clip);
              y = hn::IfThenElse(hn::Gt(y, limit), limit, y);
              y = hn::IfThenElse(hn::Lt(y, hn::Neg(limit)), hn::Neg(limit), y);
            }
            return y;
          },
          sums + r * stride + i, at(e.bias, i), at(e.scale, i), at(add, i));
    });
  }
}

void finish(const float* sums, int64_t stride, int m, int columns, const Epilogue& epilogue,
            const float* const* residual, float* const* out) {
  switch (epilogue.activation) {
    case Activation::none:
      return finish_rows<Activation::none>(sums, stride, m, columns, epilogue, residual, out);
    case Activation::silu:
      return finish_rows<Activation::silu>(sums, stride, m, columns, epilogue, residual, out);
    case Activation::gelu_erf:
      return finish_rows<Activation::gelu_erf>(sums, stride, m, columns, epilogue, residual, out);
  }
}

void gate(const float* gate_sums, const float* up_sums, int64_t stride, int m, int columns,
          float* const* out) {
  for (int r = 0; r < m; ++r)
    for_strips(columns, [&](int i, int length) HWY_ATTR {
      map_strip(
          length, out[r] + i, [](V g, V u, V, V) HWY_ATTR { return hn::Mul(silu(g), u); },
          gate_sums + r * stride + i, up_sums + r * stride + i);
    });
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
