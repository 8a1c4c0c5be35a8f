// Products of one row and of a few: every linear layer of a frame, gated pairs, projections to q, k, v.
#pragma once
#include "backend/gpu/kernels/panel.cuh"

template <int kKind, int kRows>
KP_DEV void load_norm(const float* norm, int inputs, int g, Inputs<kRows>& to) {
  const int first = first_input<kKind>(g);
  KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) to.norm[i] = first + i < inputs ? norm[first + i] : 1.0f;
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
    fetch_inputs<kKind, kRows, kAhead>(a, inputs, from, to, f);
  }
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

/// The rows of a block: kRows from tile * kRows on; lane r of a warp looks after row r. One row is the only
/// row of its op, which leaves little to compute: what all warps of all blocks do counts.
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
    return kRows == 1 ? a.x.data : input_row(a.x, a.lanes, kp_min_i(first + r, rows - 1));
  }
  /// Whether row r is this lane's and counts.
  KP_METHOD bool stores(const ProductArgs& a, const LaneState& state, int r) const {
    return kp_lane() == r && first + r < rows && own - own_lane * a.lanes.rows < counted_rows(a.lanes, state);
  }
};

/// Up to kRows rows by one panel (of each matrix, with kPair): the 8 warps of a block take a part each.
template <int kKind, int kRows, int kAhead, bool kPair, class Queue>
KP_DEV void product_few(const ProductArgs& a, int tile, int number, float* exchange, int exchanged,
                        Queue& queue) {
  enum { kMatrices = kPair ? 2 : 1 };
  const int part = kp_warp();
  const PanelIndex index = find_panel<kPair>(a, number);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel[2] = {panel_of<kKind>(m, index.panel),
                          panel_of<kKind>(a.matrix[kPair ? 1 : index.matrix], index.panel)};
  const int size = (m.groups + kParts - 1) / kParts;
  const int from = kp_min_i(part * size, m.groups), to = kp_min_i(from + size, m.groups);
  fetch_weights<kAhead>(panel, from, to, queue);
  kp_launch_dependents();
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
  fetch_inputs<kKind, kRows, kAhead>(a, m.inputs, from, to, f);
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
  RegisterQueue<kKind, kAhead, kPair> queue;
#endif
  product_few<kKind, kRows, kAhead, kPair>(a, tile, number, shared, own, queue);
}

#define PRODUCT_FEW(name, kind, count, ahead, pair, resident)                           \
  extern "C" __global__ void KP_BOUNDS_RESIDENT(256, resident) name(ProductArgs a) {    \
    KP_DYN_SHARED(float, shared);                                                       \
    const int tile = count == 1 ? 0 : kp_bid() / a.panels;                              \
    product_few<kind, count, ahead, pair>(a, tile, kp_bid() - tile * a.panels, shared); \
  }
// Residents: as many as are wanted beside what comes before and behind, without spilling.
#define PRODUCTS_FEW(type, kind)                            \
  PRODUCT_FEW(product_##type##_1, kind, 1, 4, false, 4)     \
  PRODUCT_FEW(product_##type##_1_8, kind, 1, 8, false, 3)   \
  PRODUCT_FEW(product_##type##_1_12, kind, 1, 12, false, 2) \
  PRODUCT_FEW(product_##type##_2, kind, 2, 4, false, 3)     \
  PRODUCT_FEW(product_##type##_4, kind, 4, 4, false, 1)     \
  PRODUCT_FEW(pair_##type##_1, kind, 1, 4, true, 3)         \
  PRODUCT_FEW(pair_##type##_1_8, kind, 1, 8, true, 2)       \
  PRODUCT_FEW(pair_##type##_2, kind, 2, 4, true, 2)         \
  PRODUCT_FEW(pair_##type##_4, kind, 4, 2, true, 1)
PRODUCTS_FEW(f32, kElementF32)
PRODUCTS_FEW(bf16, kElementBf16)
PRODUCTS_FEW(int8, kElementInt8)
