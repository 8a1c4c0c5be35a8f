// Products of many rows: prompts where there are no matrix units for them, and the encoders' linear layers.
#pragma once
#include "backend/gpu/kernels/panel.cuh"

/// Adds groups [from, to), the first of which have been fetched, to acc[0]: each further group is fetched
/// when the one kAhead before it has been used.
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
      load_inputs<kKind, kRows>(f.row, a.norm.weight, inputs, g + i + kAhead, f.in[i]);
    }
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
KP_DEV void product_many(const ProductArgs& a) {
  const int row_groups = a.row_groups, panels = a.panels;
  const int wide = kParts / row_groups, columns = (panels + wide - 1) / wide;
  const int tile = kp_bid() / columns, number = (kp_bid() - tile * columns) * wide + kp_warp() % wide;
  const int first = (tile * row_groups + kp_warp() / wide) * kManyRows;
  kp_wait_previous();
  // Uniform within a virtual warp; exchanges below are too, and no barrier follows.
  if (number >= panels || first >= a.lanes.lanes * a.lanes.rows) return;
  const PanelIndex index = find_panel<false>(a, number);
  const MatrixArgs& m = a.matrix[index.matrix];
  const Panel panel = panel_of<kKind>(m, index.panel);
  bool counts[kManyRows];
  RegisterQueue<kKind, kManyAhead, false> queue;
  Flow<kManyRows, kManyAhead> f;
  KP_UNROLL
  for (int r = 0; r < kManyRows; ++r) {
    counts[r] = row_counts(a.lanes, first + r);
    f.row[r] = input_row(a.x, a.lanes, kp_min_i(first + r, a.lanes.lanes * a.lanes.rows - 1));
  }
  if (!(counts[0] || counts[1] || counts[2] || counts[3])) return;
  const int end = m.groups, size = (end + kParts - 1) / kParts;
  float total[kManyRows][kPanelOutputs], acc[1][kManyRows][kPanelOutputs], squares[kManyRows];
  clear<kManyRows>(total);
  for (int from = 0; from < end; from += size) {
    const int to = kp_min_i(from + size, end);
    fetch_weights<kManyAhead>(&panel, from, to, queue);
    clear<kManyRows>(acc[0]);
    fetch_inputs<kKind, kManyRows, kManyAhead>(a, m.inputs, from, to, f);
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
    finish(a.to, total[r][0] * factor, first + r, index.column + c);
  }
}

#define PRODUCT_MANY(name, kind)                                  \
  extern "C" __global__ void KP_BOUNDS(256) name(ProductArgs a) { \
    kp_launch_dependents();                                       \
    product_many<kind>(a);                                        \
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
  const float* x = input_row(a.x, a.lanes, row);
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
