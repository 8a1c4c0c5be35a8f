// Matrix products: every linear layer, gated pairs, projections to q, k, v, and all convolutions.
//
// Order of operations, the same in every kernel and for any number of rows: the groups of inputs of a panel
// (32 inputs, int8: 64) are cut into 8 consecutive parts; lane l of a virtual warp sums inputs l (int8: 2 l,
// 2 l + 1) of the groups of a part in order; the 8 parts of a lane are added in order; the lanes are added as
// kp_sum32() does.
#pragma once
#include "backend/gpu/kernels/common.cuh"

enum { kPanelOutputs = 8, kParts = 8 };

/// Bytes of a group of one panel.
template <int kKind>
KP_DEV int group_bytes() {
  return kKind == kElementF32 ? 1024 : 512;
}
template <int kKind>
KP_DEV int group_inputs() {
  return kKind == kElementInt8 ? 64 : 32;
}

/// The weights of one lane and group: 8 outputs by 1 input (int8: 2).
template <int kKind>
struct Unit {
  kp_u32x4 a, b;
};

/// Where the weights of a panel are.
struct Panel {
  const kp_u8* first;  ///< tap 0, group 0, this lane
  const kp_u8* scales;
  kp_i64 tap_bytes;
  int groups, taps;
};

template <int kKind>
KP_DEV Panel panel_of(const MatrixArgs& m, int phase, int index) {
  const kp_u8* first = m.data + phase * m.phase_bytes + index * m.panel_bytes;
  return {first + 16 * kp_lane(), first + m.scale_bytes, m.tap_bytes, m.groups, m.taps};
}

/// Group g of all taps: its tap, and its number within the tap.
struct GroupAt {
  int tap, group;
};
KP_DEV GroupAt locate(const Panel& p, int g) {
  if (p.taps == 1) return {0, g};
  const int tap = (int)((kp_u32)g / (kp_u32)p.groups);
  return {tap, g - tap * p.groups};
}

template <int kKind>
KP_DEV Unit<kKind> load_unit(const Panel& p, int g) {
  const GroupAt at = locate(p, g);
  const kp_u8* from = p.first + at.tap * p.tap_bytes + (kp_i64)at.group * group_bytes<kKind>();
  Unit<kKind> u;
  u.a = kp_load_weights(from);
  if (kKind == kElementF32) u.b = kp_load_weights(from + 512);
  return u;
}

/// Weights of 8 outputs: input `which` of the unit.
template <int kKind>
KP_DEV void unpack(const Unit<kKind>& u, int which, float* w) {
  if (kKind == kElementF32) {
    w[0] = kp_as_f32(u.a.x), w[1] = kp_as_f32(u.a.y), w[2] = kp_as_f32(u.a.z), w[3] = kp_as_f32(u.a.w);
    w[4] = kp_as_f32(u.b.x), w[5] = kp_as_f32(u.b.y), w[6] = kp_as_f32(u.b.z), w[7] = kp_as_f32(u.b.w);
  } else if (kKind == kElementBf16) {
    w[0] = kp_bf16_low(u.a.x), w[1] = kp_bf16_high(u.a.x), w[2] = kp_bf16_low(u.a.y),
    w[3] = kp_bf16_high(u.a.y);
    w[4] = kp_bf16_low(u.a.z), w[5] = kp_bf16_high(u.a.z), w[6] = kp_bf16_low(u.a.w),
    w[7] = kp_bf16_high(u.a.w);
  } else {
    // A byte b of two's complement plus 128 in the low bits of 2^23 is the float 2^23 + 128 + b.
    const kp_u32 low = (which == 0 ? u.a.x : u.a.z) ^ 0x80808080u,
                 high = (which == 0 ? u.a.y : u.a.w) ^ 0x80808080u;
    KP_UNROLL
    for (int i = 0; i < 4; ++i) {
      w[i] = kp_as_f32(kp_bytes(low, 0x4b000000u, 0x7540u + (kp_u32)i)) - 8388736.0f;
      w[4 + i] = kp_as_f32(kp_bytes(high, 0x4b000000u, 0x7540u + (kp_u32)i)) - 8388736.0f;
    }
  }
}

/// acc[r][c] += x[r] . weights of output c.
template <int kKind, int kRows>
KP_DEV void accumulate(const Unit<kKind>& u, const kp_u8* scales, const float (*x)[2],
                       float (*acc)[kPanelOutputs]) {
  float w[kPanelOutputs];
  unpack<kKind>(u, 0, w);
  if (kKind != kElementInt8) {
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c) acc[r][c] = kp_fma(x[r][0], w[c], acc[r][c]);
    return;
  }
  float second[kPanelOutputs];
  unpack<kKind>(u, 1, second);
  const float* scale = (const float*)scales;
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int c = 0; c < kPanelOutputs; ++c)
    acc[r][c] = kp_fma(scale[c], kp_fma(x[r][1], second[c], x[r][0] * w[c]), acc[r][c]);
}

/// The input rows of one block, and how they are normalised.
template <int kRows>
struct Inputs {
  const float* row[kRows];  ///< null: the row does not count
  RowNorm norm[kRows];
};

/// x of this lane for group g: x[r][0], int8 also x[r][1]; 0 beyond the inputs and in rows that do not count.
template <int kKind, int kRows>
KP_DEV void load_inputs(const ProductArgs& a, const Inputs<kRows>& in, const Panel& p, int g, int inputs,
                        float (*x)[2]) {
  const GroupAt at = locate(p, g);
  const int first = at.group * group_inputs<kKind>() + kp_lane() * (kKind == kElementInt8 ? 2 : 1);
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int i = 0; i < (kKind == kElementInt8 ? 2 : 1); ++i) {
    x[r][i] = 0.0f;
    if (in.row[r] && first + i < inputs)
      x[r][i] = apply_norm(a.norm, in.norm[r], in.row[r][at.tap * a.x.tap_stride + first + i], first + i);
  }
}

/// Adds groups [from, to) of a panel to acc. `next` holds the unit of group `from`; units are fetched kAhead
/// groups ahead of their use.
enum { kAhead = 4 };
template <int kKind, int kRows>
KP_DEV void accumulate_groups(const ProductArgs& a, const Inputs<kRows>& in, const Panel& p, int inputs,
                              int from, int to, Unit<kKind>* next, float (*acc)[kPanelOutputs]) {
  for (int g = from; g < to; g += kAhead) {
    Unit<kKind> now[kAhead];
    KP_UNROLL
    for (int i = 0; i < kAhead; ++i) now[i] = next[i];
    KP_UNROLL
    for (int i = 0; i < kAhead; ++i)
      if (g + kAhead + i < to) next[i] = load_unit<kKind>(p, g + kAhead + i);
    KP_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (g + i >= to) break;
      float x[kRows][2];
      load_inputs<kKind, kRows>(a, in, p, g + i, inputs, x);
      accumulate<kKind, kRows>(now[i], p.scales + 32 * (g + i), x, acc);
    }
  }
}

template <int kKind>
KP_DEV void fetch_first(const Panel& p, int from, int to, Unit<kKind>* next) {
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to) next[i] = load_unit<kKind>(p, from + i);
}

/// Which matrix, phase and panel a number is: panels are counted through all matrices and phases.
struct PanelIndex {
  int matrix, phase, panel;
  int column;  ///< of the panel's first output, among the columns of one output row
};
KP_DEV PanelIndex find_panel(const ProductArgs& a, int n) {
  PanelIndex i = {0, 0, n, 0};
  int columns = 0;
  while (true) {
    const MatrixArgs& m = a.matrix[i.matrix];
    const int panels = (m.outputs + kPanelOutputs - 1) / kPanelOutputs;
    if (i.panel < panels * m.phases || i.matrix + 1 == a.matrices) {
      i.phase = i.panel / panels, i.panel -= i.phase * panels;
      i.column = columns + i.panel * kPanelOutputs;
      return i;
    }
    i.panel -= panels * m.phases, columns += m.outputs, ++i.matrix;
  }
}

/// First groups of the parts: part n is [n * size, (n + 1) * size), cut off at the end.
KP_DEV int part_size(const Panel& p) { return (p.groups * p.taps + kParts - 1) / kParts; }

KP_DEV const float* input_row(const ProductArgs& a, int row) {
  const int lane = row / a.lanes.rows;
  return a.x.data + lane * a.x.lane_stride + (kp_i64)(row - lane * a.lanes.rows) * a.x.row_stride;
}

/// The carried rows of a convolution, by the blocks behind those of the product.
KP_DEV void carry_state(const ProductArgs& a, int block, int threads) {
  const int per_lane = a.carry.history * a.carry.width, total = per_lane * a.lanes.lanes;
  for (int i = block * threads + kp_tid(); i < total; i += a.carry.blocks * threads) {
    const int lane = i / per_lane, at = i - lane * per_lane, h = at / a.carry.width,
              c = at - h * a.carry.width;
    const Lane l = read_lane(a.lanes, lane);
    if (l.rows == 0) continue;
    const kp_i64 from = (kp_i64)lane * (a.carry.history + a.lanes.rows) + l.rows + h;
    a.carry.state[((kp_i64)l.slot * a.carry.history + h) * a.carry.stride + c] =
        a.carry.from[from * a.carry.width + c];
  }
}

/// Up to kRows rows by one panel (of each matrix, with kPair): the 8 warps of a block take a part each.
/// Block b: panel b % panels of rows kRows * (b / panels) and on. `exchange` holds kRows * 2048 floats.
template <int kKind, int kRows, bool kPair>
KP_DEV void product_few(const ProductArgs& a, int panels, float* exchange) {
  const int tile = kp_bid() / panels, part = kp_warp();
  const PanelIndex index = find_panel(a, kp_bid() - tile * panels);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel = panel_of<kKind>(m, index.phase, index.panel);
  const Panel second = panel_of<kKind>(a.matrix[kPair ? 1 : 0], 0, index.panel);
  const int size = part_size(panel), total = panel.groups * panel.taps;
  const int from = kp_min_i(part * size, total), to = kp_min_i(from + size, total);
  Unit<kKind> next[kAhead], next_second[kAhead];
  fetch_first<kKind>(panel, from, to, next);
  if (kPair) fetch_first<kKind>(second, from, to, next_second);
  kp_wait_previous();

  Inputs<kRows> in;
  bool any = false;
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int row = tile * kRows + r;
    const bool counts = row_counts(a.lanes, row);
    in.row[r] = counts ? input_row(a, row) : (const float*)0;
    in.norm[r] = {0.0f, 1.0f};
    any = any || counts;
  }
  if (!any) return;
  if (a.norm.kind != 0) {
    KP_UNROLL
    for (int r = 0; r < kRows; ++r)
      if (in.row[r]) in.norm[r] = row_norm(a.norm, in.row[r], m.inputs, exchange + 16 * r);
    kp_barrier();
  }
  float sums[kPair ? 2 : 1][kRows];
  KP_UNROLL
  for (int which = 0; which < (kPair ? 2 : 1); ++which) {
    float acc[kRows][kPanelOutputs];
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c) acc[r][c] = 0.0f;
    accumulate_groups<kKind, kRows>(a, in, which ? second : panel, m.inputs, from, to,
                                    which ? next_second : next, acc);
    if (which) kp_barrier();  // the sums of the first have been read
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c)
      exchange[((part * kRows + r) * kPanelOutputs + c) * 32 + kp_lane()] = acc[r][c];
    kp_barrier();
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) {  // warp c adds up output c
      float sum = 0.0f;
      KP_UNROLL
      for (int n = 0; n < kParts; ++n)
        sum += exchange[((n * kRows + r) * kPanelOutputs + kp_warp()) * 32 + kp_lane()];
      sums[which][r] = kp_sum32(sum);
    }
  }
  if (index.panel * kPanelOutputs + kp_warp() >= m.outputs) return;
  const int column = index.column + kp_warp();
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (kp_lane() != r || !in.row[r]) continue;
    const kp_i64 row = (kp_i64)(tile * kRows + r) * m.phases + index.phase;
    if (kPair)
      a.to.out[row * a.to.out_stride + column] = kp_silu(sums[0][r]) * sums[1][r];
    else
      finish(a.to, sums[0][r], row, column);
  }
}

enum { kManyRows = 4 };  ///< rows of one warp in product_many

/// Four rows by one panel a warp. The 8 warps of a block are 8 / row_groups panels by row_groups groups of
/// rows; block b: panels from 8 / row_groups * (b % columns), rows from 4 * row_groups * (b / columns).
template <int kKind>
KP_DEV void product_many(const ProductArgs& a, int panels, int row_groups) {
  const int wide = kParts / row_groups, columns = (panels + wide - 1) / wide;
  const int tile = kp_bid() / columns, number = (kp_bid() - tile * columns) * wide + kp_warp() % wide;
  const int first = (tile * row_groups + kp_warp() / wide) * kManyRows;
  kp_wait_previous();
  Inputs<kManyRows> in;
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) {
    in.row[r] = row_counts(a.lanes, first + r) ? input_row(a, first + r) : (const float*)0;
    in.norm[r] = {0.0f, 1.0f};
  }
  // Uniform within a virtual warp; exchanges below are too, and no barrier follows.
  if (number >= panels) return;
  const PanelIndex index = find_panel(a, number);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel = panel_of<kKind>(m, index.phase, index.panel);
  const int size = part_size(panel), end = panel.groups * panel.taps;
  float total[kManyRows][kPanelOutputs], acc[kManyRows][kPanelOutputs];
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) KP_UNROLL
  for (int c = 0; c < kPanelOutputs; ++c) total[r][c] = 0.0f;
  for (int from = 0; from < end; from += size) {
    Unit<kKind> next[kAhead];
    const int to = kp_min_i(from + size, end);
    fetch_first<kKind>(panel, from, to, next);
    KP_UNROLL
    for (int r = 0; r < kManyRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c) acc[r][c] = 0.0f;
    accumulate_groups<kKind, kManyRows>(a, in, panel, m.inputs, from, to, next, acc);
    KP_UNROLL
    for (int r = 0; r < kManyRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c) total[r][c] += acc[r][c];
  }
  // Lanes halve the outputs they hold until each has one, c = lane / 4, then add the last four lanes.
  const int lane = kp_lane();
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) {
    float* t = total[r];
    KP_UNROLL
    for (int half = 4; half > 0; half >>= 1) {
      const bool upper = (lane & half * 4) != 0;
      KP_UNROLL
      for (int c = 0; c < half; ++c) {
        const float mine = upper ? t[c + half] : t[c], theirs = upper ? t[c] : t[c + half];
        t[c] = mine + kp_shfl_xor(theirs, half * 4);
      }
    }
    t[0] += kp_shfl_xor(t[0], 2);
    t[0] += kp_shfl_xor(t[0], 1);
  }
  const int c = lane >> 2;
  if (index.panel * kPanelOutputs + c >= m.outputs) return;
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r)
    if ((lane & 3) == r && in.row[r])
      finish(a.to, total[r][0], (kp_i64)(first + r) * m.phases + index.phase, index.column + c);
}

/// Number of panels of all matrices and phases.
template <bool kPair>
KP_DEV int count_panels(const ProductArgs& a) {
  int n = 0;
  for (int i = 0; i < (kPair ? 1 : a.matrices); ++i)
    n += (a.matrix[i].outputs + kPanelOutputs - 1) / kPanelOutputs * a.matrix[i].phases;
  return n;
}

#define PRODUCT_FEW(name, kind, count, pair)                              \
  extern "C" __global__ void KP_BOUNDS(256) name(ProductArgs a) {         \
    KP_DYN_SHARED(float, exchange);                                       \
    kp_launch_dependents();                                               \
    const int panels = count_panels<pair>(a);                             \
    const int tiles = (a.lanes.lanes * a.lanes.rows + count - 1) / count; \
    if (kp_bid() < panels * tiles) {                                      \
      product_few<kind, count, pair>(a, panels, exchange);                \
    } else {                                                              \
      kp_wait_previous();                                                 \
      carry_state(a, kp_bid() - panels * tiles, 256);                     \
    }                                                                     \
  }
PRODUCT_FEW(product_f32_1, kElementF32, 1, false)
PRODUCT_FEW(product_f32_2, kElementF32, 2, false)
PRODUCT_FEW(product_f32_4, kElementF32, 4, false)
PRODUCT_FEW(product_bf16_1, kElementBf16, 1, false)
PRODUCT_FEW(product_bf16_2, kElementBf16, 2, false)
PRODUCT_FEW(product_bf16_4, kElementBf16, 4, false)
PRODUCT_FEW(product_int8_1, kElementInt8, 1, false)
PRODUCT_FEW(product_int8_2, kElementInt8, 2, false)
PRODUCT_FEW(product_int8_4, kElementInt8, 4, false)
PRODUCT_FEW(pair_f32_1, kElementF32, 1, true)
PRODUCT_FEW(pair_f32_2, kElementF32, 2, true)
PRODUCT_FEW(pair_f32_4, kElementF32, 4, true)
PRODUCT_FEW(pair_bf16_1, kElementBf16, 1, true)
PRODUCT_FEW(pair_bf16_2, kElementBf16, 2, true)
PRODUCT_FEW(pair_bf16_4, kElementBf16, 4, true)
PRODUCT_FEW(pair_int8_1, kElementInt8, 1, true)
PRODUCT_FEW(pair_int8_2, kElementInt8, 2, true)
PRODUCT_FEW(pair_int8_4, kElementInt8, 4, true)

#define PRODUCT_MANY(name, kind)                                                \
  extern "C" __global__ void KP_BOUNDS(256) name(ProductArgs a) {               \
    kp_launch_dependents();                                                     \
    const int panels = count_panels<false>(a), wide = kParts / a.row_groups;    \
    const int per_tile = kManyRows * a.row_groups;                              \
    const int tiles = (a.lanes.lanes * a.lanes.rows + per_tile - 1) / per_tile; \
    const int blocks = (panels + wide - 1) / wide * tiles;                      \
    if (kp_bid() < blocks) {                                                    \
      product_many<kind>(a, panels, a.row_groups);                              \
    } else {                                                                    \
      kp_wait_previous();                                                       \
      carry_state(a, kp_bid() - blocks, 256);                                   \
    }                                                                           \
  }
PRODUCT_MANY(product_f32_many, kElementF32)
PRODUCT_MANY(product_bf16_many, kElementBf16)
PRODUCT_MANY(product_int8_many, kElementInt8)

/// One row a block.
extern "C" __global__ void KP_BOUNDS(256) normalise(NormaliseArgs a) {
  __shared__ float part[16];
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid();
  if (!row_counts(a.lanes, row)) return;
  const int lane = row / a.lanes.rows;
  const float* x = a.x.data + lane * a.x.lane_stride + (kp_i64)(row - lane * a.lanes.rows) * a.x.row_stride;
  RowNorm norm = {0.0f, 1.0f};
  if (a.norm.kind != 0) norm = row_norm(a.norm, x, a.width, part);
  for (int i = kp_tid(); i < a.width; i += kRowThreads)
    finish(a.to, apply_norm(a.norm, norm, x[i], i), row, i);
}
