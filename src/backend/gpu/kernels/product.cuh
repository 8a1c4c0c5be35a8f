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

/// What one lane uses of a group: weights of 8 outputs by 1 input (int8: 2), and the norm's weights.
template <int kKind>
struct Unit {
  kp_u32x4 a, b;
  float norm[2];
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

/// Inputs of a lane in a group.
template <int kKind>
KP_DEV int lane_inputs() {
  return kKind == kElementInt8 ? 2 : 1;
}
template <int kKind>
KP_DEV int first_input(const GroupAt& at) {
  return at.group * group_inputs<kKind>() + kp_lane() * lane_inputs<kKind>();
}

/// `norm`: weights of an RMS norm, or null.
template <int kKind>
KP_DEV Unit<kKind> load_unit(const Panel& p, const float* norm, int inputs, int g) {
  const GroupAt at = locate(p, g);
  const kp_u8* from = p.first + at.tap * p.tap_bytes + (kp_i64)at.group * group_bytes<kKind>();
  Unit<kKind> u;
  u.a = kp_load_weights(from);
  if (kKind == kElementF32) u.b = kp_load_weights(from + 512);
  KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) {
    const int input = first_input<kKind>(at) + i;
    u.norm[i] = norm && input < inputs ? norm[input] : 1.0f;
  }
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

/// x of this lane for group g, 0 beyond the inputs.
template <int kKind, int kRows>
KP_DEV void load_inputs(const float* const* row, kp_i64 tap_stride, const Panel& p, int inputs, int g,
                        float (*x)[2]) {
  const GroupAt at = locate(p, g);
  const int first = first_input<kKind>(at);
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i)
    x[r][i] = first + i < inputs ? row[r][at.tap * tap_stride + first + i] : 0.0f;
}

/// Adds x^2 to the sums of squares, then multiplies x with the norm's weights.
template <int kKind, int kRows>
KP_DEV void apply_norm_weights(const Unit<kKind>& u, float (*x)[2], float* squares) {
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) {
    squares[r] = kp_fma(x[r][i], x[r][i], squares[r]);
    x[r][i] = u.norm[i] * x[r][i];
  }
}

template <int kRows>
KP_DEV void clear(float (*acc)[kPanelOutputs]) {
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int c = 0; c < kPanelOutputs; ++c) acc[r][c] = 0.0f;
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

/// Part of one panel (of each of two matrices, with kPair) in flight: weights are fetched kAhead groups ahead
/// of their use, the first of them before the launch ahead of this one has ended.
template <int kKind, int kRows, int kAhead, bool kPair>
struct Flow {
  Unit<kKind> unit[kAhead], second[kPair ? kAhead : 1];
  float x[kAhead][kRows][2];
  const float* row[kRows];
};

template <int kKind, int kRows, int kAhead, bool kPair>
KP_DEV void fetch_weights(const ProductArgs& a, const Panel* p, int inputs, int g, int i,
                          Flow<kKind, kRows, kAhead, kPair>& f) {
  f.unit[i] = load_unit<kKind>(p[0], a.norm.weight, inputs, g);
  if (kPair) f.second[i] = load_unit<kKind>(p[1], (const float*)0, inputs, g);
}

/// The inputs of the first groups.
template <int kKind, int kRows, int kAhead, bool kPair>
KP_DEV void fetch_inputs(const ProductArgs& a, const Panel* p, int inputs, int from, int to,
                         Flow<kKind, kRows, kAhead, kPair>& f) {
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to) load_inputs<kKind, kRows>(f.row, a.x.tap_stride, p[0], inputs, from + i, f.x[i]);
}

/// Adds groups [from, to), the first of which have been fetched, to acc[0] (and acc[1]) and the squares of the
/// inputs to `squares`.
template <int kKind, int kRows, int kAhead, bool kPair>
KP_DEV void accumulate_part(const ProductArgs& a, const Panel* p, int inputs, int from, int to,
                            Flow<kKind, kRows, kAhead, kPair>& f, float (*acc)[kRows][kPanelOutputs],
                            float* squares) {
  for (int g = from; g < to; g += kAhead) {
    KP_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (g + i >= to) break;
      if (a.norm.weight) apply_norm_weights<kKind, kRows>(f.unit[i], f.x[i], squares);
      accumulate<kKind, kRows>(f.unit[i], p[0].scales + 32 * (g + i), f.x[i], acc[0]);
      if (kPair)
        accumulate<kKind, kRows>(f.second[i], p[1].scales + 32 * (g + i), f.x[i], acc[kPair ? 1 : 0]);
      if (g + i + kAhead >= to) continue;
      fetch_weights<kKind, kRows, kAhead, kPair>(a, p, inputs, g + i + kAhead, i, f);
      load_inputs<kKind, kRows>(f.row, a.x.tap_stride, p[0], inputs, g + i + kAhead, f.x[i]);
    }
  }
}

/// Sums over the parts and lanes of a block: value `index` of `count` that every thread has put into
/// `exchange` [part][count][lane].
KP_DEV float sum_parts(const float* exchange, int count, int index) {
  float sum = 0.0f;
  KP_UNROLL
  for (int n = 0; n < kParts; ++n) sum += exchange[(n * count + index) * 32 + kp_lane()];
  return kp_sum32(sum);
}

/// Up to kRows rows by one panel (of each matrix, with kPair): the 8 warps of a block take a part each.
/// Block b: panel b % panels of rows kRows * (b / panels) and on. `exchange` holds kRows * 9 * 256 floats.
template <int kKind, int kRows, int kAhead, bool kPair>
KP_DEV void product_few(const ProductArgs& a, int panels, float* exchange) {
  enum { kMatrices = kPair ? 2 : 1, kCount = kRows * (kPanelOutputs + 1) };
  const int tile = kp_bid() / panels, part = kp_warp(), lane = kp_lane(), rows = a.lanes.lanes * a.lanes.rows;
  const PanelIndex index = find_panel(a, kp_bid() - tile * panels);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel[2] = {panel_of<kKind>(m, index.phase, index.panel),
                          panel_of<kKind>(a.matrix[kPair ? 1 : index.matrix], 0, index.panel)};
  const int size = part_size(panel[0]), total = panel[0].groups * panel[0].taps;
  const int from = kp_min_i(part * size, total), to = kp_min_i(from + size, total);
  Flow<kKind, kRows, kAhead, kPair> f;
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to) fetch_weights<kKind, kRows, kAhead, kPair>(a, panel, m.inputs, from + i, i, f);
  kp_wait_previous();
  // Rows that do not count are read like the others, they are only not stored: knowing takes longer than
  // reading, so it is asked for around the inputs. Lane r of a warp looks after row r.
  const int own = kp_min_i(tile * kRows + kp_min_i(lane, kRows - 1), rows - 1), own_lane = own / a.lanes.rows;
  const int slot = ask_slot(a.lanes, own_lane);
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) f.row[r] = input_row(a, kp_min_i(tile * kRows + r, rows - 1));
  float acc[kMatrices][kRows][kPanelOutputs], squares[kRows];
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) squares[r] = 0.0f;
  KP_UNROLL
  for (int n = 0; n < kMatrices; ++n) clear<kRows>(acc[n]);
  fetch_inputs<kKind, kRows, kAhead, kPair>(a, panel, m.inputs, from, to, f);
  const LaneState state = ask_state(a.lanes, own_lane, slot);
  accumulate_part<kKind, kRows, kAhead, kPair>(a, panel, m.inputs, from, to, f, acc, squares);

  float sums[kMatrices][kRows], factor[kRows];
  KP_UNROLL
  for (int n = 0; n < kMatrices; ++n) {
    if (n > 0) kp_barrier();  // the sums of the first have been read
    float* mine = exchange + part * kCount * 32 + lane;
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KP_UNROLL
      for (int c = 0; c < kPanelOutputs; ++c) mine[(r * kPanelOutputs + c) * 32] = acc[n][r][c];
      if (n == 0 && a.norm.weight) mine[(kRows * kPanelOutputs + r) * 32] = squares[r];
    }
    kp_barrier();
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) {  // warp c adds up output c
      if (n == 0) factor[r] = a.norm.weight ? sum_parts(exchange, kCount, kRows * kPanelOutputs + r) : 0.0f;
      sums[n][r] = sum_parts(exchange, kCount, r * kPanelOutputs + kp_warp());
    }
  }
  if (index.panel * kPanelOutputs + kp_warp() >= m.outputs) return;
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int row = tile * kRows + r;
    if (lane != r || row >= rows || row - own_lane * a.lanes.rows >= counted_rows(a.lanes, state)) continue;
    factor[r] = a.norm.weight ? rms_factor(factor[r], m.inputs, a.norm.epsilon)
                : a.factor    ? a.factor[row]
                              : 1.0f;
    const kp_i64 to_row = (kp_i64)row * m.phases + index.phase;
    const int column = index.column + kp_warp();
    if (kPair)
      a.to.out[to_row * a.to.out_stride + column] =
          kp_silu(sums[0][r] * factor[r]) * (sums[kMatrices - 1][r] * factor[r]);
    else
      finish(a.to, sums[0][r] * factor[r], to_row, column);
  }
}

enum { kManyRows = 4, kManyAhead = 4 };  ///< rows of one warp in product_many

/// Lanes halve the outputs they hold until each has one, c = lane / 4, then add the last four lanes: the
/// order of kp_sum32(). t[0] becomes the sum of output c.
KP_DEV void sum_lanes(float* t) {
  KP_UNROLL
  for (int half = 4; half > 0; half >>= 1) {
    const bool upper = (kp_lane() & half * 4) != 0;
    KP_UNROLL
    for (int c = 0; c < half; ++c) {
      const float mine = upper ? t[c + half] : t[c], theirs = upper ? t[c] : t[c + half];
      t[c] = mine + kp_shfl_xor(theirs, half * 4);
    }
  }
  t[0] += kp_shfl_xor(t[0], 2);
  t[0] += kp_shfl_xor(t[0], 1);
}

/// Four rows by one panel a warp. The 8 warps of a block are 8 / row_groups panels by row_groups groups of
/// rows; block b: panels from 8 / row_groups * (b % columns), rows from 4 * row_groups * (b / columns).
template <int kKind>
KP_DEV void product_many(const ProductArgs& a, int panels, int row_groups) {
  const int wide = kParts / row_groups, columns = (panels + wide - 1) / wide;
  const int tile = kp_bid() / columns, number = (kp_bid() - tile * columns) * wide + kp_warp() % wide;
  const int first = (tile * row_groups + kp_warp() / wide) * kManyRows;
  kp_wait_previous();
  // Uniform within a virtual warp; exchanges below are too, and no barrier follows.
  if (number >= panels || first >= a.lanes.lanes * a.lanes.rows) return;
  const PanelIndex index = find_panel(a, number);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel = panel_of<kKind>(m, index.phase, index.panel);
  bool counts[kManyRows];
  Flow<kKind, kManyRows, kManyAhead, false> f;
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) {
    counts[r] = row_counts(a.lanes, first + r);
    f.row[r] = input_row(a, kp_min_i(first + r, a.lanes.lanes * a.lanes.rows - 1));
  }
  if (!(counts[0] || counts[1] || counts[2] || counts[3])) return;
  const int size = part_size(panel), end = panel.groups * panel.taps;
  float total[kManyRows][kPanelOutputs], acc[1][kManyRows][kPanelOutputs], squares[kManyRows];
  clear<kManyRows>(total);
  for (int from = 0; from < end; from += size) {
    const int to = kp_min_i(from + size, end);
    KP_UNROLL
    for (int i = 0; i < kManyAhead; ++i)
      if (from + i < to)
        fetch_weights<kKind, kManyRows, kManyAhead, false>(a, &panel, m.inputs, from + i, i, f);
    clear<kManyRows>(acc[0]);
    fetch_inputs<kKind, kManyRows, kManyAhead, false>(a, &panel, m.inputs, from, to, f);
    accumulate_part<kKind, kManyRows, kManyAhead, false>(a, &panel, m.inputs, from, to, f, acc, squares);
    KP_UNROLL
    for (int r = 0; r < kManyRows; ++r) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c) total[r][c] += acc[0][r][c];
  }
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) sum_lanes(total[r]);
  const int c = kp_lane() >> 2;
  if (index.panel * kPanelOutputs + c >= m.outputs) return;
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) {
    if ((kp_lane() & 3) != r || !counts[r]) continue;
    const float factor = a.factor ? a.factor[first + r] : 1.0f;
    finish(a.to, total[r][0] * factor, (kp_i64)(first + r) * m.phases + index.phase, index.column + c);
  }
}

/// Number of panels of all matrices and phases.
template <bool kPair>
KP_DEV int count_panels(const ProductArgs& a) {
  int n = 0;
  for (int i = 0; i < (kPair ? 1 : a.matrices); ++i)
    n += (a.matrix[i].outputs + kPanelOutputs - 1) / kPanelOutputs * a.matrix[i].phases;
  return n;
}

#define PRODUCT_FEW(name, kind, count, ahead, pair)                       \
  extern "C" __global__ void KP_BOUNDS(256) name(ProductArgs a) {         \
    KP_DYN_SHARED(float, exchange);                                       \
    kp_launch_dependents();                                               \
    const int panels = count_panels<pair>(a);                             \
    const int tiles = (a.lanes.lanes * a.lanes.rows + count - 1) / count; \
    if (kp_bid() < panels * tiles) {                                      \
      product_few<kind, count, ahead, pair>(a, panels, exchange);         \
    } else {                                                              \
      kp_wait_previous();                                                 \
      carry_state(a, kp_bid() - panels * tiles, 256);                     \
    }                                                                     \
  }
PRODUCT_FEW(product_f32_1, kElementF32, 1, 4, false)
PRODUCT_FEW(product_f32_1_deep, kElementF32, 1, 8, false)
PRODUCT_FEW(product_f32_2, kElementF32, 2, 4, false)
PRODUCT_FEW(product_f32_4, kElementF32, 4, 4, false)
PRODUCT_FEW(product_bf16_1, kElementBf16, 1, 4, false)
PRODUCT_FEW(product_bf16_1_deep, kElementBf16, 1, 12, false)
PRODUCT_FEW(product_bf16_2, kElementBf16, 2, 4, false)
PRODUCT_FEW(product_bf16_4, kElementBf16, 4, 4, false)
PRODUCT_FEW(product_int8_1, kElementInt8, 1, 4, false)
PRODUCT_FEW(product_int8_1_deep, kElementInt8, 1, 12, false)
PRODUCT_FEW(product_int8_2, kElementInt8, 2, 4, false)
PRODUCT_FEW(product_int8_4, kElementInt8, 4, 4, false)
PRODUCT_FEW(pair_f32_1, kElementF32, 1, 4, true)
PRODUCT_FEW(pair_f32_2, kElementF32, 2, 4, true)
PRODUCT_FEW(pair_f32_4, kElementF32, 4, 2, true)
PRODUCT_FEW(pair_bf16_1, kElementBf16, 1, 4, true)
PRODUCT_FEW(pair_bf16_2, kElementBf16, 2, 4, true)
PRODUCT_FEW(pair_bf16_4, kElementBf16, 4, 2, true)
PRODUCT_FEW(pair_int8_1, kElementInt8, 1, 4, true)
PRODUCT_FEW(pair_int8_2, kElementInt8, 2, 4, true)
PRODUCT_FEW(pair_int8_4, kElementInt8, 4, 2, true)

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

/// One row a block. With `factors` the row is left as weight * x and what it is to be multiplied with goes
/// there: the product does that at its end, in the order of the sums that it takes itself for a few rows.
extern "C" __global__ void KP_BOUNDS(256) normalise(NormaliseArgs a) {
  __shared__ float part[256];
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid();
  if (!row_counts(a.lanes, row)) return;
  const int lane = row / a.lanes.rows;
  const float* x = a.x.data + lane * a.x.lane_stride + (kp_i64)(row - lane * a.lanes.rows) * a.x.row_stride;
  if (!a.factors) {
    RowNorm norm = {0.0f, 1.0f};
    if (a.norm.kind != 0) norm = row_norm(a.norm, x, a.width, part);
    for (int i = kp_tid(); i < a.width; i += kRowThreads)
      finish(a.to, apply_norm(a.norm, norm, x[i], i), row, i);
    return;
  }
  const int groups = (a.width + a.group_inputs - 1) / a.group_inputs, size = (groups + kParts - 1) / kParts;
  const int each = a.group_inputs / 32, end = kp_min_i((kp_warp() + 1) * size, groups);
  float squares = 0.0f;
  for (int g = kp_warp() * size; g < end; ++g)
    for (int i = 0; i < each; ++i) {
      const int at = g * a.group_inputs + kp_lane() * each + i;
      if (at < a.width) squares = kp_fma(x[at], x[at], squares);
    }
  part[kp_tid()] = squares;
  kp_barrier();
  const float sum = sum_parts(part, 1, 0);
  if (kp_tid() == 0) a.factors[row] = rms_factor(sum, a.width, a.norm.epsilon);
  for (int i = kp_tid(); i < a.width; i += kRowThreads)
    a.to.out[row * a.to.out_stride + i] = a.norm.weight[i] * x[i];
}
