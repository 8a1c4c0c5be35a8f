// What the kernels share: the lanes of an op, sums over a row, epilogues.
#pragma once
#include "backend/gpu/kernels/functions.cuh"

/// One lane that takes part in this run; `rows` 0 = it does not.
struct Lane {
  int slot, rows, position;
};

KP_DEV void report(const LaneArgs& a, int code, int value) {
  kp_store_system(a.fault, (kp_u64)code << 56 | (kp_u64)(a.op & 0xffffff) << 32 | (kp_u32)value);
}

/// What says whether a lane takes part, as it is read: each load waits for the one before. A kernel that has
/// other work to do meanwhile asks in two steps.
struct LaneState {
  int slot, gate, units;  ///< units: -1 where the lanes have no count
};
KP_DEV int ask_slot(const LaneArgs& a, int lane) { return a.slot[(kp_i64)lane * a.slot_stride]; }
KP_DEV LaneState ask_state(const LaneArgs& a, int lane, int slot) {
  const bool exists = slot >= 0 && slot < a.slots;
  return {slot, exists && a.gate ? a.gate[(kp_i64)slot * a.gate_stride] : 1,
          exists && a.count ? a.count[(kp_i64)lane * a.count_stride] : -1};
}
/// How many rows of the lane count.
KP_DEV int counted_rows(const LaneArgs& a, const LaneState& s) {
  if (s.slot < 0) return 0;
  if (s.slot >= a.slots) {
    report(a, kFaultSlot, s.slot);
    return 0;
  }
  if (s.gate != 1) return 0;
  if (!a.count) return a.rows;
  const kp_i64 stride = a.stride > 1 ? a.stride : 1, units = (kp_i64)s.units * a.rate;
  if (s.units < 0 || units > a.rows * stride) {
    report(a, kFaultCount, s.units);
    return 0;
  }
  return stride == 1 ? (int)units : (int)((units + stride - 1) / stride);
}

/// The lane as `Lanes` of ops.h says. Every thread may call it; a fault is reported by whoever finds it.
KP_DEV Lane read_lane(const LaneArgs& a, int lane) {
  const int slot = ask_slot(a, lane);
  const LaneState s = ask_state(a, lane, slot);
  const int start = a.start && slot >= 0 && slot < a.slots ? a.start[(kp_i64)slot * a.start_stride] : 0;
  return {slot, counted_rows(a, s), start + a.start_offset};
}

/// Whether row r of the op counts.
KP_DEV bool row_counts(const LaneArgs& a, int row) {
  if (row >= a.lanes * a.rows) return false;
  return row % a.rows < read_lane(a, row / a.rows).rows;
}

/// Row `row` of an op's input: the rows of its lanes one behind the other.
KP_DEV const float* input_row(const InputArgs& x, const LaneArgs& lanes, int row) {
  const int lane = row / lanes.rows;
  return x.data + lane * x.lane_stride + (kp_i64)(row - lane * lanes.rows) * x.row_stride;
}

/// Element `at` of a table.
KP_DEV float table_value(const TableArgs& t, kp_i64 at) {
  if (t.kind == kElementF32) return ((const float*)t.data)[at];
  const kp_u16 half = ((const kp_u16*)t.data)[at];
  return t.kind == kElementBf16 ? kp_as_f32((kp_u32)half << 16) : kp_f16(half);
}

/// Rows for convolutions are staged in units of neighbouring channels, so that the rows of a tile stand side
/// by side: [units][rows of all lanes][kUnitInputs]. `unit_stride` is rows times kUnitInputs.
KP_DEV kp_i64 staged_offset(kp_i64 unit_stride, kp_i64 row, int column) {
  return column / kUnitInputs * unit_stride + row * kUnitInputs + column % kUnitInputs;
}
/// A width rounded up to whole units.
KP_DEV int staged_width(int width) { return (width + kUnitInputs - 1) / kUnitInputs * kUnitInputs; }

// ---- 64-bit exchanges

KP_DEV kp_u64 shfl_xor_64(kp_u64 v, int mask) {
  return (kp_u64)kp_shfl_xor_u((kp_u32)(v >> 32), mask) << 32 | kp_shfl_xor_u((kp_u32)v, mask);
}

KP_DEV double kp_sum32_d(double v) {
  KP_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) v += double_of(shfl_xor_64(bits_of(v), mask));
  return v;
}

// ---- sums over a row, by 256 threads

enum { kRowThreads = 256 };

/// Sum of one value per thread over the first 256 threads of a block; every thread of the block calls it and
/// gets it. `part` holds 8 floats and may be used again after the next barrier.
KP_DEV float sum256(float v, float* part) {
  v = kp_sum32(v);
  if (kp_lane() == 0 && kp_warp() < 8) part[kp_warp()] = v;
  kp_barrier();
  float sum = part[0];
  KP_UNROLL
  for (int i = 1; i < 8; ++i) sum += part[i];
  return sum;
}

/// What normalises a row: normed = (x - mean) * factor, then weight and bias.
struct RowNorm {
  float mean, factor;
};

/// What an RMS norm multiplies a row with, from the sum of its squares.
KP_DEV float rms_factor(float squares, int width, float epsilon) {
  return 1.0f / kp_sqrt(squares / (float)width + epsilon);
}

/// The sums run over elements t, t + 256, ... of thread t. `part` holds 16 floats; a barrier must stand
/// between two calls with the same ones.
KP_DEV RowNorm row_norm(const NormArgs& norm, const float* x, int width, float* part) {
  RowNorm r = {0.0f, 1.0f};
  const int t = kp_tid() < kRowThreads ? kp_tid() : width;
  if (norm.kind == 2) {
    float sum = 0.0f;
    for (int i = t; i < width; i += kRowThreads) sum += x[i];
    r.mean = sum256(sum, part + 8) / (float)width;
  }
  float squares = 0.0f;
  for (int i = t; i < width; i += kRowThreads) {
    const float d = x[i] - r.mean;
    squares = kp_fma(d, d, squares);
  }
  r.factor = rms_factor(sum256(squares, part), width, norm.epsilon);
  return r;
}

KP_DEV float apply_norm(const NormArgs& norm, const RowNorm& r, float x, int i) {
  if (norm.kind == 0) return x;
  if (norm.kind == 1) return norm.weight[i] * (x * r.factor);
  return kp_fma((x - r.mean) * r.factor, norm.weight[i], norm.bias ? norm.bias[i] : 0.0f);
}

// ---- epilogue

/// What element (row, column) of a product is added to: asked for while the sums are still made.
KP_DEV float residual_of(const EpilogueArgs& to, kp_i64 row, int column) {
  return to.residual ? to.residual[row * to.residual_stride + column] : 0.0f;
}

/// Stores element (row, column) of a product; `before` is its residual_of().
KP_DEV void finish_with(const EpilogueArgs& to, float sum, float before, kp_i64 row, int column) {
  if (to.gate) {
    to.out[row * to.out_stride + column] = kp_silu(to.gate[row * to.gate_stride + column]) * sum;
    return;
  }
  const float* bias = to.bias && to.bias_rows > 0 ? to.bias + row / to.bias_rows * to.bias_stride : to.bias;
  float y = kp_activate(to.activation, bias ? sum + bias[column] : sum);
  if (to.scale) y = y * to.scale[column];
  if (to.residual) y = before + y;
  if (to.clip > 0.0f) {  // the comparisons are false for NaN, which must survive
    y = y > to.clip ? to.clip : y;
    y = y < -to.clip ? -to.clip : y;
  }
  to.out[row * to.out_stride + column] = y;
}
KP_DEV void finish(const EpilogueArgs& to, float sum, kp_i64 row, int column) {
  finish_with(to, sum, residual_of(to, row, column), row, column);
}
