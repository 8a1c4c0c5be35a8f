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

/// kLanes weights as floats.
template <Layout kLayout>
HWY_INLINE V load_weights(const std::byte* from) {
  if constexpr (kLayout == Layout::f32) {
    return hn::Load(kD, reinterpret_cast<const float*>(from));
  } else if constexpr (kLayout == Layout::bf16) {
    constexpr hn::RebindToUnsigned<D> kWide;
    constexpr hn::Rebind<uint16_t, D> kNarrow;
    const auto bits = hn::PromoteTo(kWide, hn::Load(kNarrow, reinterpret_cast<const uint16_t*>(from)));
    return hn::BitCast(kD, hn::ShiftLeft<16>(bits));
  } else {
    constexpr hn::RebindToSigned<D> kWide;
    constexpr hn::Rebind<int8_t, D> kNarrow;
    return hn::ConvertTo(kD, hn::PromoteTo(kWide, hn::Load(kNarrow, reinterpret_cast<const int8_t*>(from))));
  }
}

/// Accumulators of kRows rows and kPanels panels.
template <int kRows, int kPanels>
using Accumulators = V[kRows][kPanels][kVectors];

/// Bytes of one input of a panel.
template <Layout kLayout>
constexpr int64_t kInputBytes = kPanel*(kLayout == Layout::f32    ? 4
                                        : kLayout == Layout::bf16 ? 2
                                                                  : 1);

/// acc[m][p] += x[m][k] * weight of input k.
template <Layout kLayout, int kRows, int kPanels>
HWY_INLINE void multiply_add(const float* const (&x)[kRows], int k, const std::byte* weights,
                             int64_t panel_stride, Accumulators<kRows, kPanels>& acc) {
  V w[kPanels][kVectors];
#pragma GCC unroll 16
  for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      w[p][v] = load_weights<kLayout>(weights + p * panel_stride + v * (kInputBytes<kLayout> / kVectors));
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m) {
    const V broadcast = hn::Set(kD, x[m][k]);
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[m][p][v] = hn::MulAdd(broadcast, w[p][v], acc[m][p][v]);
  }
}

constexpr int64_t kLine = 64;          // bytes of a cache line
constexpr int64_t kFetchAhead = 2048;  // bytes of each panel

/// `length` inputs from the weights at `weights`, `position` bytes after the start of their panel. One row
/// waits for memory alone: what lies ahead is fetched, at the end of a panel the start of the one that
/// follows the group.
template <Layout kLayout, int kRows, int kPanels>
HWY_INLINE void accumulate(const float* const (&x)[kRows], int length, const std::byte* weights,
                           int64_t position, int64_t panel_stride, Accumulators<kRows, kPanels>& acc) {
  int k = 0;
  if constexpr (kRows == 1 && kPanels == kGroup) {
    constexpr int kInputs = static_cast<int>(kLine / kInputBytes<kLayout>);  // of one line of one panel
    constexpr int kRun = 64;
    for (; k + kRun <= length; k += kRun) {
      int64_t ahead = kFetchAhead;
      if (position + k * kInputBytes<kLayout> + ahead >= panel_stride) ahead += (kPanels - 1) * panel_stride;
      for (int i = k; i < k + kRun; i += kInputs)
#pragma GCC unroll 4
        for (int j = 0; j < kInputs; ++j, weights += kInputBytes<kLayout>) {
          multiply_add<kLayout, kRows, kPanels>(x, i + j, weights, panel_stride, acc);
#pragma GCC unroll 4
          for (int p = 0; p < kPanels / kInputs; ++p)
            hwy::Prefetch(weights + (j * (kPanels / kInputs) + p) * panel_stride + ahead);
        }
    }
  }
  for (; k < length; ++k, weights += kInputBytes<kLayout>)
    multiply_add<kLayout, kRows, kPanels>(x, k, weights, panel_stride, acc);
}

template <int kRows, int kPanels, class F>
HWY_INLINE void for_accumulators(F&& f) {
#pragma GCC unroll 16
  for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) f(m, p, v);
}

/// One block of inputs of kRows rows and kPanels panels; `add` continues the totals in `sums`.
template <Layout kLayout, int kRows, int kPanels>
HWY_INLINE void tile(const float* const* rows, const Segment* segments, int segment_count,
                     const std::byte* panel, int64_t panel_stride, bool add, float* sums,
                     int64_t sums_stride) {
  Accumulators<kRows, kPanels> acc;
  const auto clear = [&] {
    for_accumulators<kRows, kPanels>([&](int m, int p, int v) HWY_ATTR { acc[m][p][v] = hn::Zero(kD); });
  };
  const auto at = [&](int m, int p, int v) { return sums + m * sums_stride + p * kPanel + v * kLanes; };
  const float* x[kRows];
  if constexpr (kLayout == Layout::int8) {
    const int first = static_cast<int>(segments->weights / kPanel);
    for (int done = 0; done < segments->length; done += kScaleInputs) {
      const int64_t position = panel_bytes(kLayout, first + done);
      const std::byte* const run = panel + position;
      for (int m = 0; m < kRows; ++m) x[m] = rows[m] + segments->offset + done;
      clear();
      accumulate<kLayout, kRows, kPanels>(x, std::min(kScaleInputs, segments->length - done),
                                          run + kPanel * sizeof(float), position, panel_stride, acc);
      for_accumulators<kRows, kPanels>([&](int m, int p, int v) HWY_ATTR {
        const V scale = hn::Load(kD, reinterpret_cast<const float*>(run + p * panel_stride) + v * kLanes);
        float* const to = at(m, p, v);
        hn::Store(add || done > 0 ? hn::MulAdd(scale, acc[m][p][v], hn::Load(kD, to))
                                  : hn::Mul(scale, acc[m][p][v]),
                  kD, to);
      });
    }
  } else {
    clear();
    for (int s = 0; s < segment_count; ++s) {
      for (int m = 0; m < kRows; ++m) x[m] = rows[m] + segments[s].offset;
      // A transposed convolution has its taps in other groups of panels.
      const int64_t at_input = panel_bytes(kLayout, segments[s].weights / kPanel);
      accumulate<kLayout, kRows, kPanels>(x, segments[s].length, panel + at_input, at_input % panel_stride,
                                          panel_stride, acc);
    }
    for_accumulators<kRows, kPanels>([&](int m, int p, int v) HWY_ATTR {
      float* const to = at(m, p, v);
      hn::Store(add ? hn::Add(hn::Load(kD, to), acc[m][p][v]) : acc[m][p][v], kD, to);
    });
  }
}

/// A tile of exactly kRows rows over all panels of the group.
template <Layout kLayout, int kRows>
HWY_NOINLINE void tile_row(const float* const* rows, const Segment* segments, int segment_count,
                           const Panels& panels, bool add, float* sums, int64_t sums_stride) {
  constexpr int kWide = tile_panels(kRows);
  int p = 0;
  for (; p + kWide <= panels.count; p += kWide)
    tile<kLayout, kRows, kWide>(rows, segments, segment_count, panels.first + p * panels.stride,
                                panels.stride, add, sums + p * kPanel, sums_stride);
  for (; p < panels.count; ++p)
    tile<kLayout, kRows, 1>(rows, segments, segment_count, panels.first + p * panels.stride, panels.stride,
                            add, sums + p * kPanel, sums_stride);
}

using TileRow = void (*)(const float* const*, const Segment*, int, const Panels&, bool, float*, int64_t);

template <Layout kLayout, int... kRows>
constexpr TileRow tile_table_entry(int rows, std::integer_sequence<int, kRows...>) {
  TileRow found = nullptr;
  ((rows == kRows + 1 ? void(found = tile_row<kLayout, kRows + 1>) : void()), ...);
  return found;
}

template <Layout kLayout>
void product_of(const float* const* rows, int m, const Segment* segments, int segment_count,
                const Panels& panels, float* sums) {
  const int64_t sums_stride = int64_t{panels.count} * kPanel;
  bool add = false;
  for (int s = 0; s < segment_count;) {
    int end = s;
    while (!segments[end++].ends_block) {
    }
    // The block of weights stays in the first or second level cache while all rows pass over it.
    for (int r = 0; r < m; r += kTileRows) {
      const int count = std::min(kTileRows, m - r);
      const TileRow call = tile_table_entry<kLayout>(count, std::make_integer_sequence<int, kTileRows>());
      call(rows + r, segments + s, end - s, panels, add, sums + r * sums_stride, sums_stride);
    }
    add = true;
    s = end;
  }
}

void product(const float* const* rows, int m, const Segment* segments, int segment_count,
             const Panels& panels, float* sums) {
  switch (panels.layout) {
    case Layout::f32: return product_of<Layout::f32>(rows, m, segments, segment_count, panels, sums);
    case Layout::bf16: return product_of<Layout::bf16>(rows, m, segments, segment_count, panels, sums);
    case Layout::int8: return product_of<Layout::int8>(rows, m, segments, segment_count, panels, sums);
    case Layout::pairs16:
    case Layout::pairs8: break;  // pair_product
  }
}

template <Activation kActivation>
HWY_INLINE V activate(V x) {
  if constexpr (kActivation == Activation::silu) return silu(x);
  if constexpr (kActivation == Activation::gelu_erf) return gelu_erf(x);
  if constexpr (kActivation == Activation::relu) return relu(x);
  if constexpr (kActivation == Activation::relu_tanh) return relu_tanh(x);
  if constexpr (kActivation == Activation::sigmoid) return sigmoid(x);
  if constexpr (kActivation == Activation::elu) return elu(x);
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
    case Activation::relu:
      return finish_rows<Activation::relu>(sums, stride, m, columns, epilogue, residual, out);
    case Activation::relu_tanh:
      return finish_rows<Activation::relu_tanh>(sums, stride, m, columns, epilogue, residual, out);
    case Activation::sigmoid:
      return finish_rows<Activation::sigmoid>(sums, stride, m, columns, epilogue, residual, out);
    case Activation::elu:
      return finish_rows<Activation::elu>(sums, stride, m, columns, epilogue, residual, out);
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
