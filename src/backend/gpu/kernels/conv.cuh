// Convolutions: the staging of their input and tiles of their product
// (docs/decisions/0012-codec-tiles-on-gpus.md).
//
// Order of operations, the same in every kernel and for any number of rows: an output's inputs are cut into
// units of 8 neighbouring channels of one kernel position, ordered by channels and then by position from the
// oldest row to the newest. The units are cut into 8 consecutive parts; a part is one chain of multiply-adds,
// and the parts are added in order.
#pragma once
#include "backend/gpu/kernels/common.cuh"

/// A block of 8 warps makes one tile of 8 kRows rows by 32 outputs, each warp a part of every sum.
enum {
  kTileParts = 8,
  kTileOutputs = 32,
  kTilePanels = 4,
  kPanelFloats = 68,  ///< of one unit and panel in shared memory: 64, and 4 that keep panels on other banks
  kUnitWeights = kTilePanels * kPanelFloats,
  kSumStride = kTileOutputs + 4,
  kStagedEach = 4,  ///< elements of one thread of `stage`
};

/// Element `at` of the staged rows: where it goes, null = nowhere, and what it is before the snake.
struct Staged {
  float* to;
  float value;
  int column;  ///< of the snake; -1 = none
};

/// `l` is lane `known` and becomes the one that the element belongs to.
KP_DEV Staged find_staged(const StageArgs& a, kp_u32 at, int& known, Lane& l) {
  const int whole = a.history + a.lanes.rows, padded = staged_width(a.width);
  const int staged = (int)(at / (kp_u32)padded), column = (int)(at - (kp_u32)staged * (kp_u32)padded),
            lane = staged / whole, r = staged - lane * whole - a.history;
  if (lane >= a.lanes.lanes) return {(float*)0, 0.0f, -1};
  if (lane != known) l = read_lane(a.lanes, lane), known = lane;
  if (r >= l.rows || l.rows == 0) return {(float*)0, 0.0f, -1};
  float* const to = a.out + staged_offset((kp_i64)a.lanes.lanes * whole * kUnitInputs, staged, column);
  if (column >= a.width) return {to, 0.0f, -1};
  if (r < 0) return {to, a.state[((kp_i64)l.slot * a.history + a.history + r) * a.state_stride + column], -1};
  return {to, a.x[((kp_i64)lane * a.lanes.rows + r) * a.x_stride + column], a.alpha ? column : -1};
}

/// Four elements a thread of the staged rows, [lanes][history + rows][width], the width rounded up to units.
extern "C" __global__ void KP_BOUNDS(256) stage(StageArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  Staged s[kStagedEach];
  Lane l = {0, 0, 0};
  int known = -1;
  KP_UNROLL
  for (int i = 0; i < kStagedEach; ++i)
    s[i] = find_staged(a, ((kp_u32)kp_bid() * kStagedEach + i) * 256 + (kp_u32)kp_tid(), known, l);
  KP_UNROLL
  for (int i = 0; i < kStagedEach; ++i) {
    if (!s[i].to) continue;
    const int c = s[i].column;
    *s[i].to = c < 0 ? s[i].value : kp_snake(s[i].value, a.alpha[c], a.inverse_beta[c]);
  }
}

/// The newest rows of every lane become its state. Block `block` of a.carry.blocks.
KP_DEV void carry_staged(const ConvArgs& a, int block) {
  const int per_lane = a.around * a.carry.width, total = per_lane * a.lanes.lanes;
  LaneArgs inputs = a.lanes;
  inputs.rows *= a.stride, inputs.stride = 1;
  for (int i = block * 256 + kp_tid(); i < total; i += a.carry.blocks * 256) {
    const int lane = i / per_lane, at = i - lane * per_lane, h = at / a.carry.width,
              c = at - h * a.carry.width;
    const Lane l = read_lane(inputs, lane);
    if (l.rows == 0) continue;
    const kp_i64 row = (kp_i64)lane * (a.around + inputs.rows) + l.rows + h;
    a.carry.state[((kp_i64)l.slot * a.around + h) * a.carry.stride + c] =
        a.x[staged_offset(a.unit_stride, row, c)];
  }
}

KP_DEV kp_u32x4 read_four(const float* from) { return *(const kp_u32x4*)from; }

/// What a lane fetches of kUnits units ahead of their use.
template <int kRows, int kUnits>
struct ConvStep {
  kp_u32x4 x[kRows * kUnits / 2], w[2 * kUnits];
};

/// Where a lane fetches from: two panels apart, and rows 16 apart.
template <int kRows>
struct ConvSource {
  const kp_u8* weights;
  kp_u32 panel[2];                     ///< in bytes from the beginning of the phase
  int row[kRows > 1 ? kRows / 2 : 1];  ///< in floats from the beginning of a unit
};

struct ConvUnit {
  int group, tap;
};
KP_DEV ConvUnit find_unit(const ConvArgs& a, int unit) {
  const int group = (int)((kp_u64)(kp_u32)unit * a.tap_inverse >> 32);
  return {group, unit - group * a.matrix.taps};
}

template <int kRows>
KP_DEV ConvSource<kRows> conv_source(const ConvArgs& a, int first_row, int first_panel, int phase) {
  ConvSource<kRows> s;
  s.weights = a.matrix.data + phase * a.matrix.phase_bytes;
  const int lane = kp_lane(), panels = (a.matrix.outputs + 7) / 8, rows = a.lanes.lanes * a.lanes.rows;
  KP_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int panel = kp_min_i(first_panel + 2 * i + lane / 16, panels - 1);
    s.panel[i] =
        (kp_u32)panel * (kp_u32)a.matrix.panel_bytes + (kp_u32)((lane / 8 % 2) * 512 + lane % 8 * 16);
  }
  KP_UNROLL
  for (int i = 0; i < (kRows > 1 ? kRows / 2 : 1); ++i) {
    const int row = kp_min_i(first_row + 16 * i + lane % (kRows > 1 ? 32 : 16) / 2, rows - 1);
    s.row[i] = (row * a.stride + row / a.lanes.rows * a.around) * kUnitInputs + lane % 2 * 4;
  }
  return s;
}

template <int kRows, int kUnits>
KP_DEV void fetch_step_weights(const ConvArgs& a, const ConvSource<kRows>& s, int unit, int end,
                               ConvStep<kRows, kUnits>& step) {
  KP_UNROLL
  for (int j = 0; j < kUnits; ++j) {
    const ConvUnit u = find_unit(a, kp_min_i(unit + j, end - 1));
    const kp_u8* from =
        s.weights + u.tap * a.matrix.tap_bytes + ((u.group >> 2) * 1024 + (u.group & 3) * 128);
    KP_UNROLL
    for (int i = 0; i < 2; ++i) step.w[2 * j + i] = kp_load_weights(from + s.panel[i]);
  }
}

template <int kRows, int kUnits>
KP_DEV void fetch_step_inputs(const ConvArgs& a, const ConvSource<kRows>& s, int unit, int end,
                              ConvStep<kRows, kUnits>& step) {
  KP_UNROLL
  for (int i = 0; i < kRows * kUnits / 2; ++i) {
    const int j = (i * 32 + kp_lane()) / (16 * kRows);
    const ConvUnit u = find_unit(a, kp_min_i(unit + j, end - 1));
    const float* from = a.x + u.group * a.unit_stride + u.tap * a.dilation * kUnitInputs;
    step.x[i] = read_four(from + s.row[i % (kRows > 1 ? kRows / 2 : 1)]);
  }
}

/// Shared memory of a warp: x [kUnits][8 kRows][8], then weights [kUnits][4 panels][2][8][4].
template <int kRows, int kUnits>
KP_DEV void put_step(const ConvStep<kRows, kUnits>& step, float* shared) {
  const int lane = kp_lane();
  KP_UNROLL
  for (int i = 0; i < kRows * kUnits / 2; ++i) *(kp_u32x4*)(shared + (i * 32 + lane) * 4) = step.x[i];
  float* const w = shared + kUnits * kRows * 64;
  KP_UNROLL
  for (int i = 0; i < 2 * kUnits; ++i)
    *(kp_u32x4*)(w + (i / 2) * kUnitWeights + (i % 2 * 2 + lane / 16) * kPanelFloats + lane % 16 * 4) =
        step.w[i];
}

/// A lane's outputs: rows tile_row() + 8 r by the 8 outputs of panel tile_panel(). Neighbouring lanes share
/// rows, the next but one share weights, so that wide reads of shared memory come together.
KP_DEV int tile_panel() { return (kp_lane() & 1) | (kp_lane() >> 1 & 2); }
KP_DEV int tile_row() { return (kp_lane() >> 1 & 1) | (kp_lane() >> 2 & 6); }

KP_DEV float word_of(const kp_u32x4& v, int i) {
  return kp_as_f32(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w);
}

template <int kRows>
KP_DEV void add_unit(const float* x, const float* w, float (*acc)[8]) {
  x += tile_row() * kUnitInputs, w += tile_panel() * kPanelFloats;
  KP_UNROLL
  for (int first = 0; first < kUnitInputs; first += 4) {
    kp_u32x4 in[kRows];
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) in[r] = *(const kp_u32x4*)(x + r * 64 + first);
    KP_UNROLL
    for (int k = 0; k < 4; ++k) {
      const kp_u32x4 low = *(const kp_u32x4*)(w + (first + k) * 4),
                     high = *(const kp_u32x4*)(w + 32 + (first + k) * 4);
      KP_UNROLL
      for (int r = 0; r < kRows; ++r) {
        KP_UNROLL
        for (int c = 0; c < 8; ++c)
          acc[r][c] = kp_fma(word_of(in[r], k), c < 4 ? word_of(low, c) : word_of(high, c - 4), acc[r][c]);
      }
    }
  }
}

/// Adds the parts of kOnce rows of every lane and stores what became of them.
template <int kOnce>
KP_DEV void finish_rows(const ConvArgs& a, const float (*acc)[8], float* sums, int first_row,
                        int first_output, int phase) {
  float* const mine = sums + kp_warp() * kOnce * 8 * kSumStride + tile_panel() * 8;
  kp_barrier();
  KP_UNROLL
  for (int r = 0; r < kOnce; ++r) {
    KP_UNROLL
    for (int c = 0; c < 8; ++c) mine[(r * 8 + tile_row()) * kSumStride + c] = acc[r][c];
  }
  kp_barrier();
  const int column = first_output + kp_lane();
  KP_UNROLL
  for (int r = 0; r < kOnce; ++r) {
    const int row = first_row + r * 8 + kp_warp();
    if (column >= a.matrix.outputs || !row_counts(a.lanes, row)) continue;
    const float* from = sums + (r * 8 + kp_warp()) * kSumStride + kp_lane();
    float sum = 0.0f;
    KP_UNROLL
    for (int part = 0; part < kTileParts; ++part) sum += from[part * kOnce * 8 * kSumStride];
    finish(a.to, sum, (kp_i64)row * a.matrix.phases + phase, column);
  }
}

/// Block b: rows from 8 kRows * (b % row tiles), then outputs, then phases.
template <int kRows, int kUnits>
KP_DEV void conv_tile(const ConvArgs& a, float* shared) {
  enum { kOnce = kRows > 1 ? 2 : 1, kWarpFloats = kUnits * (kRows * 64 + kUnitWeights) };
  const int tiles = (a.lanes.lanes * a.lanes.rows + 8 * kRows - 1) / (8 * kRows);
  const int wide = (a.matrix.outputs + kTileOutputs - 1) / kTileOutputs;
  const int other = kp_bid() / tiles, phase = other / wide;
  const int first_row = (kp_bid() - other * tiles) * 8 * kRows, first_output = (other - phase * wide) * 32;
  const int from = kp_min_i(kp_warp() * a.part_units, a.units), to = kp_min_i(from + a.part_units, a.units);
  const ConvSource<kRows> source = conv_source<kRows>(a, first_row, first_output / 8, phase);
  ConvStep<kRows, kUnits> step;
  if (from < to) fetch_step_weights<kRows, kUnits>(a, source, from, to, step);
  kp_wait_previous();
  const int lane = first_row / a.lanes.rows, slot = ask_slot(a.lanes, lane);
  if (from < to) fetch_step_inputs<kRows, kUnits>(a, source, from, to, step);
  // All of it behind the last row that counts.
  if (first_row - lane * a.lanes.rows >= counted_rows(a.lanes, ask_state(a.lanes, lane, slot)) &&
      first_row + 8 * kRows <= (lane + 1) * a.lanes.rows)
    return;
  float acc[kRows][8];
  KP_UNROLL
  for (int r = 0; r < kRows; ++r) KP_UNROLL
  for (int c = 0; c < 8; ++c) acc[r][c] = 0.0f;
  float* const mine = shared + kp_warp() * kWarpFloats;
  for (int unit = from; unit < to; unit += kUnits) {
    kp_warp_barrier();
    put_step<kRows, kUnits>(step, mine);
    kp_warp_barrier();
    if (unit + kUnits < to) {
      fetch_step_weights<kRows, kUnits>(a, source, unit + kUnits, to, step);
      fetch_step_inputs<kRows, kUnits>(a, source, unit + kUnits, to, step);
    }
    KP_UNROLL
    for (int j = 0; j < kUnits; ++j)
      if (unit + j < to)
        add_unit<kRows>(mine + j * kRows * 64, mine + kUnits * kRows * 64 + j * kUnitWeights, acc);
  }
  KP_UNROLL
  for (int r = 0; r < kRows; r += kOnce)
    finish_rows<kOnce>(a, acc + r, shared, first_row + 8 * r, first_output, phase);
}

#define CONV_TILE(name, rows, units, resident)                                    \
  extern "C" __global__ void KP_BOUNDS_RESIDENT(256, resident) name(ConvArgs a) { \
    KP_DYN_SHARED(float, shared);                                                 \
    kp_launch_dependents();                                                       \
    if (kp_bid() < a.tiles) {                                                     \
      conv_tile<rows, units>(a, shared);                                          \
    } else {                                                                      \
      kp_wait_previous();                                                         \
      carry_staged(a, kp_bid() - a.tiles);                                        \
    }                                                                             \
  }
CONV_TILE(conv_8, 1, 4, 2)
CONV_TILE(conv_16, 2, 2, 2)
CONV_TILE(conv_32, 4, 2, 2)
