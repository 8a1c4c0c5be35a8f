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

/// What one lane uses of a group: weights of 8 outputs by 1 input (int8: 2).
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
template <bool kTaps>
KP_DEV GroupAt locate(const Panel& p, int g) {
  if (!kTaps || p.taps == 1) return {0, g};
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

/// A lane's weights of group g.
template <int kKind, bool kTaps>
KP_DEV const kp_u8* unit_address(const Panel& p, int g) {
  const GroupAt at = locate<kTaps>(p, g);
  return p.first + (kTaps ? at.tap * p.tap_bytes : 0) + at.group * group_bytes<kKind>();
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
KP_DEV void accumulate(const Unit<kKind>& u, const float* scale, const float (*x)[2],
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
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int c = 0; c < kPanelOutputs; ++c)
    acc[r][c] = kp_fma(scale[c], kp_fma(x[r][1], second[c], x[r][0] * w[c]), acc[r][c]);
}

/// Inputs of a lane in a group of each row, and what a norm multiplies them with.
template <int kRows>
struct Inputs {
  float x[kRows][2], norm[2];
};

/// Those of group g, 0 beyond the inputs. `norm`: weights of an RMS norm, or null.
template <int kKind, int kRows, bool kTaps>
KP_DEV void load_inputs(const float* const* row, kp_i64 tap_stride, const Panel& p, const float* norm,
                        int inputs, int g, Inputs<kRows>& to) {
  const GroupAt at = locate<kTaps>(p, g);
  const int first = first_input<kKind>(at);
  KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) {
    const bool there = first + i < inputs;
    to.norm[i] = norm && there ? norm[first + i] : 1.0f;
    KP_UNROLL
    for (int r = 0; r < kRows; ++r)
      to.x[r][i] = there ? row[r][(kTaps ? at.tap * tap_stride : 0) + first + i] : 0.0f;
  }
}

/// Adds x^2 to the sums of squares, then multiplies x with the norm's weights.
template <int kKind, int kRows>
KP_DEV void apply_norm_weights(Inputs<kRows>& in, float* squares) {
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) {
    squares[r] = kp_fma(in.x[r][i], in.x[r][i], squares[r]);
    in.x[r][i] = in.norm[i] * in.x[r][i];
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

/// Weights of kAhead groups on their way, of one panel or (kPair) of two, in registers.
template <int kKind, int kAhead, bool kPair, bool kTaps>
struct RegisterQueue {
  enum { kMatrices = kPair ? 2 : 1 };
  Unit<kKind> unit[kAhead][kMatrices];

  KP_METHOD void fetch(const Panel* p, int g, int i) {
    KP_UNROLL
    for (int n = 0; n < kMatrices; ++n) {
      const kp_u8* from = unit_address<kKind, kTaps>(p[n], g);
      unit[i][n].a = kp_load_weights(from);
      if (kKind == kElementF32) unit[i][n].b = kp_load_weights(from + 512);
    }
  }
  KP_METHOD void close() {}
  template <int kOpen>
  KP_METHOD void await() {}
  KP_METHOD void release() {}
  KP_METHOD Unit<kKind> take(int i, int n) const { return unit[i][n]; }
  KP_METHOD const float* scales(const Panel* p, int g, int, int n) const {
    return (const float*)(p[n].scales + 32 * g);
  }
};

#if defined(KP_ASYNC)
/// The same in shared memory, where they need no registers: blocks of the next launch fit in beside these,
/// and fetch their own weights meanwhile. A lane reads what it fetched itself, so no barrier is needed; but
/// scales are fetched by two lanes for their warp.
template <int kKind, int kAhead, bool kPair>
struct SharedQueue {
  enum {
    kMatrices = kPair ? 2 : 1,
    kUnit = kKind == kElementF32 ? 1024 : 512,
    kScales = kKind == kElementInt8 ? 32 : 0,
    kGroup = kMatrices * (kUnit + kScales),
    kPart = kAhead * kGroup  ///< bytes of a warp
  };
  kp_u8* own;  ///< of this warp

  KP_METHOD kp_u8* unit_place(int i, int n) const { return own + i * kGroup + n * kUnit + 16 * kp_lane(); }
  KP_METHOD kp_u8* scale_place(int i, int n) const { return own + i * kGroup + kMatrices * kUnit + 32 * n; }
  KP_METHOD void fetch(const Panel* p, int g, int i) {
    KP_UNROLL
    for (int n = 0; n < kMatrices; ++n) {
      const kp_u8* from = unit_address<kKind, false>(p[n], g);
      kp_copy_16(unit_place(i, n), from);
      if (kKind == kElementF32) kp_copy_16(unit_place(i, n) + 512, from + 512);
      if (kScales && kp_lane() < 2)
        kp_copy_16(scale_place(i, n) + 16 * kp_lane(), p[n].scales + 32 * g + 16 * kp_lane());
    }
  }
  KP_METHOD void close() { kp_copies_close(); }
  /// Waits for all groups save the last kOpen.
  template <int kOpen>
  KP_METHOD void await() {
    kp_copies_wait<kOpen>();
    if (kScales) kp_warp_barrier();
  }
  /// The places may be filled again.
  KP_METHOD void release() {
    if (kScales) kp_warp_barrier();
  }
  KP_METHOD Unit<kKind> take(int i, int n) const {
    Unit<kKind> u;
    u.a = *(const kp_u32x4*)unit_place(i, n);
    if (kKind == kElementF32) u.b = *(const kp_u32x4*)(unit_place(i, n) + 512);
    return u;
  }
  KP_METHOD const float* scales(const Panel*, int, int i, int n) const {
    return (const float*)scale_place(i, n);
  }
};
#endif

/// Part of one panel (of each of two matrices, with kPair) in flight: weights are fetched kAhead groups ahead
/// of their use, the first of them before the launch ahead of this one has ended.
template <int kRows, int kAhead>
struct Flow {
  Inputs<kRows> in[kAhead];
  const float* row[kRows];
};

template <int kAhead, class Queue>
KP_DEV void fetch_weights(const Panel* p, int from, int to, Queue& queue) {
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i) {
    if (from + i < to) queue.fetch(p, from + i, i);
    queue.close();
  }
}

/// With so many groups ahead registers are worth more than the time that a norm's weights take: a product of
/// that many inputs rarely has one.
template <int kAhead>
constexpr bool kLateNorm = kAhead > 8;

/// The inputs of the first groups.
template <int kKind, int kRows, int kAhead, bool kTaps>
KP_DEV void fetch_inputs(const ProductArgs& a, const Panel* p, int inputs, int from, int to,
                         Flow<kRows, kAhead>& f) {
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to)
      load_inputs<kKind, kRows, kTaps>(f.row, a.x.tap_stride, p[0],
                                       kLateNorm<kAhead> ? (const float*)0 : a.norm.weight, inputs, from + i,
                                       f.in[i]);
}

template <int kKind, int kRows>
KP_DEV void load_norm(const float* norm, int inputs, int g, Inputs<kRows>& to) {
  const int first = first_input<kKind>({0, g});
  KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) to.norm[i] = first + i < inputs ? norm[first + i] : 1.0f;
}

/// Adds group g, whose weights are place i of the queue.
template <int kKind, int kRows, bool kPair, class Queue>
KP_DEV void accumulate_group(const ProductArgs& a, const Panel* p, int g, int i, Queue& queue,
                             Inputs<kRows>& in, float (*acc)[kRows][kPanelOutputs], float* squares) {
  if (a.norm.weight) apply_norm_weights<kKind, kRows>(in, squares);
  KP_UNROLL
  for (int n = 0; n < (kPair ? 2 : 1); ++n)
    accumulate<kKind, kRows>(queue.take(i, n), queue.scales(p, g, i, n), in.x, acc[n]);
}

/// Adds groups [from, to), the first of which have been fetched, to acc[0] (and acc[1]) and the squares of
/// the inputs to `squares`: kAhead at a time.
template <int kAt, int kKind, int kRows, int kAhead, bool kPair, class Queue>
struct Batch {
  static KP_METHOD void add(const ProductArgs& a, const Panel* p, int inputs, int from, int to, Queue& queue,
                            Flow<kRows, kAhead>& f, float (*acc)[kRows][kPanelOutputs], float* squares) {
    if (from + kAt >= to) return;
    queue.template await<kAhead - 1 - kAt>();
    if (kLateNorm<kAhead> && a.norm.weight) load_norm<kKind>(a.norm.weight, inputs, from + kAt, f.in[kAt]);
    accumulate_group<kKind, kRows, kPair>(a, p, from + kAt, kAt, queue, f.in[kAt], acc, squares);
    Batch<kAt + 1, kKind, kRows, kAhead, kPair, Queue>::add(a, p, inputs, from, to, queue, f, acc, squares);
  }
};
template <int kKind, int kRows, int kAhead, bool kPair, class Queue>
struct Batch<kAhead, kKind, kRows, kAhead, kPair, Queue> {
  static KP_METHOD void add(const ProductArgs&, const Panel*, int, int, int, Queue&, Flow<kRows, kAhead>&,
                            float (*)[kRows][kPanelOutputs], float*) {}
};
template <int kKind, int kRows, int kAhead, bool kPair, class Queue>
KP_DEV void accumulate_batches(const ProductArgs& a, const Panel* p, int inputs, int from, int to,
                               Queue& queue, Flow<kRows, kAhead>& f, float (*acc)[kRows][kPanelOutputs],
                               float* squares) {
  while (true) {
    Batch<0, kKind, kRows, kAhead, kPair, Queue>::add(a, p, inputs, from, to, queue, f, acc, squares);
    from += kAhead;
    if (from >= to) return;
    queue.release();
    fetch_weights<kAhead>(p, from, to, queue);
    fetch_inputs<kKind, kRows, kAhead, false>(a, p, inputs, from, to, f);
  }
}

/// The same from registers, each group fetched when the one kAhead before it has been used.
template <int kKind, int kRows, int kAhead, class Queue>
KP_DEV void accumulate_part(const ProductArgs& a, const Panel* p, int inputs, int from, int to, Queue& queue,
                            Flow<kRows, kAhead>& f, float (*acc)[kRows][kPanelOutputs], float* squares) {
  for (int g = from; g < to; g += kAhead) {
    KP_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (g + i >= to) break;
      accumulate_group<kKind, kRows, false>(a, p, g + i, i, queue, f.in[i], acc, squares);
      if (g + i + kAhead >= to) continue;
      queue.fetch(p, g + i + kAhead, i);
      load_inputs<kKind, kRows, true>(f.row, a.x.tap_stride, p[0], a.norm.weight, inputs, g + i + kAhead,
                                      f.in[i]);
    }
  }
}

/// Sums over the parts and lanes of a block: value `index` that every thread has put into `exchange`
/// [index][lane], warp n from n * own floats on.
KP_DEV float sum_parts(const float* exchange, int own, int index) {
  float sum = 0.0f;
  KP_UNROLL
  for (int n = 0; n < kParts; ++n) sum += exchange[n * own + index * 32 + kp_lane()];
  return kp_sum32(sum);
}

/// What a warp leaves for the others: [row][matrix][output][lane], then the squares of each row.
template <int kRows, bool kPair>
KP_DEV int exchange_count() {
  return kRows * ((kPair ? 2 : 1) * kPanelOutputs + 1);
}

/// Adds up what the 8 warps have: warp c becomes the sums of output c. Warp w has `own` floats from
/// exchange + w * own on, where its weights may have been.
template <int kRows, bool kPair>
KP_DEV void sum_block(bool normed, float* exchange, int own, const float (*acc)[kRows][kPanelOutputs],
                      const float* squares, float (*sums)[kRows], float* square_sums) {
  enum { kMatrices = kPair ? 2 : 1, kSquares = kRows * kMatrices * kPanelOutputs };
  kp_warp_barrier();  // the weights have been used
  float* mine = exchange + kp_warp() * own + kp_lane();
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KP_UNROLL
    for (int n = 0; n < kMatrices; ++n) KP_UNROLL
    for (int c = 0; c < kPanelOutputs; ++c)
      mine[((r * kMatrices + n) * kPanelOutputs + c) * 32] = acc[n][r][c];
    if (normed) mine[(kSquares + r) * 32] = squares[r];
  }
  kp_barrier();
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    square_sums[r] = normed ? sum_parts(exchange, own, kSquares + r) : 0.0f;
    KP_UNROLL
    for (int n = 0; n < kMatrices; ++n)
      sums[n][r] = sum_parts(exchange, own, (r * kMatrices + n) * kPanelOutputs + kp_warp());
  }
}

/// Which panel of which matrix a number is, of matrices of one tap and one phase.
template <bool kPair>
KP_DEV PanelIndex find_plain_panel(const ProductArgs& a, int n) {
  PanelIndex i = {0, 0, n, 0};
  for (; !kPair && i.matrix + 1 < a.matrices; ++i.matrix) {
    const int outputs = a.matrix[i.matrix].outputs, panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
    if (i.panel < panels) break;
    i.panel -= panels, i.column += outputs;
  }
  i.column += i.panel * kPanelOutputs;
  return i;
}

/// The rows of a block: kRows from tile * kRows on; lane r of a warp looks after row r. One row is the only row
/// of its op, which leaves little to compute: what all warps of all blocks do counts.
template <int kRows>
struct RowTile {
  int first, rows;    ///< of all
  int own, own_lane;  ///< this lane's

  KP_METHOD RowTile(const ProductArgs& a, int tile) {
    if (kRows == 1) {
      first = own = own_lane = 0, rows = 1;
      return;
    }
    first = tile * kRows, rows = a.lanes.lanes * a.lanes.rows;
    own = kp_min_i(first + kp_min_i(kp_lane(), kRows - 1), rows - 1), own_lane = own / a.lanes.rows;
  }
  KP_METHOD const float* input(const ProductArgs& a, int r) const {
    return kRows == 1 ? a.x.data : input_row(a, kp_min_i(first + r, rows - 1));
  }
  /// Whether row r is this lane's and counts.
  KP_METHOD bool stores(const ProductArgs& a, const LaneState& state, int r) const {
    return kp_lane() == r && first + r < rows && own - own_lane * a.lanes.rows < counted_rows(a.lanes, state);
  }
};

/// Up to kRows rows by one panel (of each matrix, with kPair): the 8 warps of a block take a part each.
/// Matrices of one tap and one phase.
template <int kKind, int kRows, int kAhead, bool kPair, class Queue>
KP_DEV void product_few(const ProductArgs& a, int tile, int number, float* exchange, int exchanged, Queue& queue) {
  enum { kMatrices = kPair ? 2 : 1 };
  const int part = kp_warp();
  const PanelIndex index = find_plain_panel<kPair>(a, number);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel[2] = {panel_of<kKind>(m, 0, index.panel),
                          panel_of<kKind>(a.matrix[kPair ? 1 : index.matrix], 0, index.panel)};
  const int size = (m.groups + kParts - 1) / kParts;
  const int from = kp_min_i(part * size, m.groups), to = kp_min_i(from + size, m.groups);
  fetch_weights<kAhead>(panel, from, to, queue);
  const RowTile<kRows> tiles(a, tile);
  Flow<kRows, kAhead> f;
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) f.row[r] = tiles.input(a, r);
  kp_wait_previous();
  // Rows that do not count are read like the others, they are only not stored: knowing takes longer than
  // reading, so it is asked for around the inputs.
  const int slot = ask_slot(a.lanes, tiles.own_lane);
  float acc[kMatrices][kRows][kPanelOutputs], squares[kRows];
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) squares[r] = 0.0f;
  KP_UNROLL
  for (int n = 0; n < kMatrices; ++n) clear<kRows>(acc[n]);
  fetch_inputs<kKind, kRows, kAhead, false>(a, panel, m.inputs, from, to, f);
  const LaneState state = ask_state(a.lanes, tiles.own_lane, slot);
  const int column = index.column + kp_warp();
  const bool exists = index.panel * kPanelOutputs + kp_warp() < m.outputs;
  const float before = !kPair && exists ? residual_of(a.to, tiles.own, column) : 0.0f;
  accumulate_batches<kKind, kRows, kAhead, kPair>(a, panel, m.inputs, from, to, queue, f, acc, squares);

  float sums[kMatrices][kRows], factor[kRows];
  sum_block<kRows, kPair>(a.norm.weight, exchange, exchanged, acc, squares, sums, factor);
  if (!exists) return;
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (!tiles.stores(a, state, r)) continue;
    const int row = tiles.first + r;
    factor[r] = a.norm.weight ? rms_factor(factor[r], m.inputs, a.norm.epsilon)
                : a.factor    ? a.factor[row]
                              : 1.0f;
    if (kPair)
      a.to.out[row * a.to.out_stride + column] =
          kp_silu(sums[0][r] * factor[r]) * (sums[kMatrices - 1][r] * factor[r]);
    else
      finish_with(a.to, sums[0][r] * factor[r], before, row, column);
  }
}

/// The same with weights on their way as the device can. A warp's part of the shared memory holds its
/// weights, then what it exchanges.
template <int kKind, int kRows, int kAhead, bool kPair>
KP_DEV void product_few(const ProductArgs& a, int tile, int number, float* shared) {
#if defined(KP_ASYNC)
  typedef SharedQueue<kKind, kAhead, kPair> Queue;
  const int own = kp_max_i(exchange_count<kRows, kPair>() * 32, Queue::kPart / 4);
  Queue queue = {(kp_u8*)(shared + kp_warp() * own)};
#else
  const int own = exchange_count<kRows, kPair>() * 32;
  RegisterQueue<kKind, kAhead, kPair, false> queue;
#endif
  product_few<kKind, kRows, kAhead, kPair>(a, tile, number, shared, own, queue);
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
  RegisterQueue<kKind, kManyAhead, false, true> queue;
  Flow<kManyRows, kManyAhead> f;
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
    fetch_weights<kManyAhead>(&panel, from, to, queue);
    clear<kManyRows>(acc[0]);
    fetch_inputs<kKind, kManyRows, kManyAhead, true>(a, &panel, m.inputs, from, to, f);
    accumulate_part<kKind, kManyRows, kManyAhead>(a, &panel, m.inputs, from, to, queue, f, acc, squares);
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

#define PRODUCT_FEW(name, kind, count, ahead, pair, resident)                        \
  extern "C" __global__ void KP_BOUNDS_RESIDENT(256, resident) name(ProductArgs a) { \
    KP_DYN_SHARED(float, shared);                                                    \
    kp_launch_dependents();                                                          \
    const int tile = count == 1 ? 0 : kp_bid() / a.panels;                           \
    product_few<kind, count, ahead, pair>(a, tile, kp_bid() - tile * a.panels, shared); \
  }
// Residents: as many as are wanted beside what comes before and behind, without spilling.
#define PRODUCTS_FEW(type, kind, one, eight, twelve, pair_one, pair_eight) \
  PRODUCT_FEW(product_##type##_1, kind, 1, 4, false, one)                  \
  PRODUCT_FEW(product_##type##_1_8, kind, 1, 8, false, eight)              \
  PRODUCT_FEW(product_##type##_1_12, kind, 1, 12, false, twelve)           \
  PRODUCT_FEW(product_##type##_2, kind, 2, 4, false, 3)                    \
  PRODUCT_FEW(product_##type##_4, kind, 4, 4, false, 1)                    \
  PRODUCT_FEW(pair_##type##_1, kind, 1, 4, true, pair_one)                 \
  PRODUCT_FEW(pair_##type##_1_8, kind, 1, 8, true, pair_eight)             \
  PRODUCT_FEW(pair_##type##_2, kind, 2, 4, true, 2)                        \
  PRODUCT_FEW(pair_##type##_4, kind, 4, 2, true, 1)
PRODUCTS_FEW(f32, kElementF32, 4, 3, 2, 3, 2)
PRODUCTS_FEW(bf16, kElementBf16, 4, 3, 2, 3, 2)
PRODUCTS_FEW(int8, kElementInt8, 4, 3, 2, 3, 2)

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
  const float sum = sum_parts(part, 32, 0);
  if (kp_tid() == 0) a.factors[row] = rms_factor(sum, a.width, a.norm.epsilon);
  for (int i = kp_tid(); i < a.width; i += kRowThreads)
    a.to.out[row * a.to.out_stride + i] = a.norm.weight[i] * x[i];
}
