// Products of many rows by bf16 matrices on matrix units: prompts and wide batches.
//
// Float32 inputs are split into three bf16 parts whose sum they are, so every product of an input and a weight
// is exact and only the sums round, as in the kernels of panel.cuh, in another order. The groups of inputs of
// a panel are cut into 8 parts, one a warp; a part is summed up by the matrix unit 16 inputs at a time, and the
// parts are added in order: a row has the same bits in any company.
#pragma once
#include "backend/gpu/kernels/common.cuh"

enum { kInputParts = 3, kTileRows = 16, kTiles = 4, kMatrixParts = 8 };

/// Nearest bf16, in the low 16 bits; NaN stays NaN.
KP_DEV kp_u32 to_bf16(float x) {
  const kp_u32 u = kp_as_u32(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return u >> 16 | ((u & 0x7fffffu) != 0 ? 0x40u : 0u);
  return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

/// The three parts of a number.
KP_DEV void split_number(float x, kp_u32* part) {
  KP_UNROLL
  for (int p = 0; p < kInputParts; ++p) {
    part[p] = to_bf16(x);
    x = x - kp_as_f32(part[p] << 16);
  }
}

/// One row a block: norm's weight times x, split, to where a lane of the matrix unit finds it; what remains of
/// the norm goes to factors[row]. Fragment (tile of 16 rows, step of 16 inputs, part) holds 4 words a lane.
extern "C" __global__ void KP_BOUNDS(256) split_rows(SplitRowsArgs a) {
  __shared__ float part[256];
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid();
  if (!row_counts(a.lanes, row)) return;
  const float* x = input_row(a.x, a.lanes, row);
  if (a.norm.weight) {
    float squares = 0.0f;
    for (int i = kp_tid(); i < a.width; i += kRowThreads) squares = kp_fma(x[i], x[i], squares);
    const float factor = rms_factor(sum256(squares, part), a.width, a.norm.epsilon);
    if (kp_tid() == 0) a.factors[row] = factor;
  }
  const int tile = row / kTileRows, r = row % kTileRows, pairs = a.steps * kTileRows / 2;
  for (int pair = kp_tid(); pair < pairs; pair += kRowThreads) {
    kp_u32 low[kInputParts], high[kInputParts];
    float v[2];
    KP_UNROLL
    for (int j = 0; j < 2; ++j) {
      const int i = 2 * pair + j;
      v[j] = i < a.width ? (a.norm.weight ? a.norm.weight[i] * x[i] : x[i]) : 0.0f;
    }
    split_number(v[0], low), split_number(v[1], high);
    const int step = pair / 8, in_step = pair % 8, owner = r % 8 * 4 + in_step % 4,
              word = r / 8 + 2 * (in_step / 4);
    KP_UNROLL
    for (int p = 0; p < kInputParts; ++p)
      a.out[((((kp_i64)tile * a.steps + step) * kInputParts + p) * 32 + owner) * 4 + word] =
          low[p] | high[p] << 16;
  }
}

#if defined(KP_MATRIX)
/// Weights of one group of 32 inputs by the 8 outputs of a panel, as the matrix unit takes them.
struct MatrixUnit {
  kp_u32 word[4];  ///< inputs 8 q .. 8 q + 7
};
KP_DEV MatrixUnit load_matrix_unit(const kp_u8* panel, int group) {
  MatrixUnit u;
  KP_UNROLL
  for (int q = 0; q < 4; ++q)
    u.word[q] = *(const kp_u32*)(panel + (kp_i64)group * 512 + 128 * q + 4 * kp_lane());
  return u;
}

/// Adds a warp's part of the groups: sums[panel][tile] += rows by panel.
template <int kPanels>
KP_DEV void multiply_part(const MatrixProductArgs& a, const kp_u8* const* panel, int tile, int tiles, int from,
                          int to, MatrixUnit* next, float (*sums)[kTiles][4]) {
  const kp_u32* const rows = a.rows + (kp_i64)tile * a.steps * kInputParts * 128 + 4 * kp_lane();
  const kp_i64 tile_words = (kp_i64)a.steps * kInputParts * 128;
  for (int g = from; g < to; ++g) {
    MatrixUnit unit[kPanels];
    KP_UNROLL
    for (int n = 0; n < kPanels; ++n) {
      KP_UNROLL
      for (int q = 0; q < 4; ++q) unit[n].word[q] = kp_transpose8(next[n].word[q]);
      if (g + 1 < to) next[n] = load_matrix_unit(panel[n], g + 1);
    }
    KP_UNROLL
    for (int half = 0; half < 2; ++half) KP_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      if (t >= tiles) continue;  // uniform
      KP_UNROLL
      for (int p = kInputParts - 1; p >= 0; --p) {  // the small parts first
        const kp_u32x4 x =
            *(const kp_u32x4*)(rows + t * tile_words + ((2 * g + half) * kInputParts + p) * 128);
        KP_UNROLL
        for (int n = 0; n < kPanels; ++n)
          kp_multiply_16x8(sums[n][t], x, unit[n].word[2 * half], unit[n].word[2 * half + 1]);
      }
    }
  }
}

/// Which panel of which matrix number n is, counted through all of them.
KP_DEV int find_matrix_panel(const MatrixProductArgs& a, int n, const kp_u8** panel, int* width) {
  int column = 0, m = 0;
  while (m + 1 < a.matrices) {
    const int panels = (a.matrix[m].outputs + 7) / 8;
    if (n < panels) break;
    n -= panels, column += a.matrix[m].outputs, ++m;
  }
  *panel = a.matrix[m].data + n * a.matrix[m].panel_bytes;
  *width = kp_max_i(kp_min_i(a.matrix[m].outputs - 8 * n, 8), 0);
  return column + 8 * n;
}

/// Up to 64 rows by kPanels panels a block, each warp a part of the inputs. `exchange`: 8 * 512 floats.
template <int kPanels>
KP_DEV void product_matrix(const MatrixProductArgs& a, float* exchange) {
  kp_launch_dependents();
  const int columns = (a.panels + kPanels - 1) / kPanels, group = kp_bid() / columns;
  const int first = (kp_bid() - group * columns) * kPanels, rows = a.lanes.lanes * a.lanes.rows;
  const int tile = group * kTiles, tiles = kp_min_i((rows + kTileRows - 1) / kTileRows - tile, kTiles);
  const kp_u8* panel[kPanels];
  int column[kPanels], width[kPanels];
  KP_UNROLL
  for (int n = 0; n < kPanels; ++n)
    column[n] = find_matrix_panel(a, kp_min_i(first + n, a.panels - 1), &panel[n], &width[n]);
  const int groups = a.steps / 2, size = (groups + kMatrixParts - 1) / kMatrixParts;
  const int from = kp_min_i(kp_warp() * size, groups), to = kp_min_i(from + size, groups);
  MatrixUnit next[kPanels];
  KP_UNROLL
  for (int n = 0; n < kPanels; ++n)
    if (from < to) next[n] = load_matrix_unit(panel[n], from);
  kp_wait_previous();
  float sums[kPanels][kTiles][4];
  KP_UNROLL
  for (int n = 0; n < kPanels; ++n) KP_UNROLL
  for (int t = 0; t < kTiles; ++t) KP_UNROLL
  for (int i = 0; i < 4; ++i) sums[n][t][i] = 0.0f;
  multiply_part<kPanels>(a, panel, tile, tiles, from, to, next, sums);
  KP_UNROLL
  for (int n = 0; n < kPanels; ++n) {
    if (first + n >= a.panels) break;  // uniform
    if (n > 0) kp_barrier();           // the sums of the last panel have been read
    KP_UNROLL
    for (int t = 0; t < kTiles; ++t) KP_UNROLL
    for (int i = 0; i < 4; ++i)
      exchange[kp_warp() * 512 + t * 128 + i * 32 + kp_lane()] = sums[n][t][i];
    kp_barrier();
    for (int e = kp_tid(); e < tiles * 128; e += 256) {
      const int t = e >> 7, i = e >> 5 & 3, lane = e & 31;
      const int row = (tile + t) * kTileRows + (lane >> 2) + 8 * (i >> 1), c = 2 * (lane & 3) + (i & 1);
      if (c >= width[n] || !row_counts(a.lanes, row)) continue;
      float sum = 0.0f;
      KP_UNROLL
      for (int w = 0; w < kMatrixParts; ++w) sum += exchange[w * 512 + e];
      finish(a.to, a.factor ? sum * a.factor[row] : sum, row, column[n] + c);
    }
  }
}
#endif

// Where there is no matrix unit that we know, these are empty and never launched (DeviceTraits::matrix).
#if defined(KP_MATRIX)
#define PRODUCT_MATRIX(name, panels)                                      \
  extern "C" __global__ void KP_BOUNDS(256) name(MatrixProductArgs a) { \
    __shared__ float exchange[8 * 512];                                   \
    product_matrix<panels>(a, exchange);                                  \
  }
#else
#define PRODUCT_MATRIX(name, panels) \
  extern "C" __global__ void KP_BOUNDS(256) name(MatrixProductArgs a) { (void)a; }
#endif
PRODUCT_MATRIX(product_matrix_1, 1)
PRODUCT_MATRIX(product_matrix_2, 2)
PRODUCT_MATRIX(product_matrix_4, 4)
