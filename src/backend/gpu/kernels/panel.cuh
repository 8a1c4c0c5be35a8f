// What the matrix products share: packed panels, weights on their way, inputs, sums.
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
  const kp_u8* first;  ///< group 0, this lane
  const kp_u8* scales;
};

template <int kKind>
KP_DEV Panel panel_of(const MatrixArgs& m, int index) {
  const kp_u8* first = m.data + index * m.panel_bytes;
  return {first + 16 * kp_lane(), first + m.scale_bytes};
}

/// Inputs of a lane in a group.
template <int kKind>
KP_DEV int lane_inputs() {
  return kKind == kElementInt8 ? 2 : 1;
}
template <int kKind>
KP_DEV int first_input(int g) {
  return g * group_inputs<kKind>() + kp_lane() * lane_inputs<kKind>();
}

/// A lane's weights of group g.
template <int kKind>
KP_DEV const kp_u8* unit_address(const Panel& p, int g) {
  return p.first + g * group_bytes<kKind>();
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
template <int kKind, int kRows>
KP_DEV void load_inputs(const float* const* row, const float* norm, int inputs, int g, Inputs<kRows>& to) {
  const int first = first_input<kKind>(g);
  KP_UNROLL
  for (int i = 0; i < lane_inputs<kKind>(); ++i) {
    const bool there = first + i < inputs;
    to.norm[i] = norm && there ? norm[first + i] : 1.0f;
    KP_UNROLL
    for (int r = 0; r < kRows; ++r) to.x[r][i] = there ? row[r][first + i] : 0.0f;
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

/// Which panel of which matrix a number is: panels are counted through all matrices.
struct PanelIndex {
  int matrix, panel;
  int column;  ///< of the panel's first output, among the columns of one output row
};
template <bool kPair>
KP_DEV PanelIndex find_panel(const ProductArgs& a, int n) {
  PanelIndex i = {0, n, 0};
  for (; !kPair && i.matrix + 1 < a.matrices; ++i.matrix) {
    const int outputs = a.matrix[i.matrix].outputs, panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
    if (i.panel < panels) break;
    i.panel -= panels, i.column += outputs;
  }
  i.column += i.panel * kPanelOutputs;
  return i;
}

/// Weights of kAhead groups on their way, of one panel or (kPair) of two, in registers.
template <int kKind, int kAhead, bool kPair>
struct RegisterQueue {
  enum { kMatrices = kPair ? 2 : 1 };
  Unit<kKind> unit[kAhead][kMatrices];

  KP_METHOD void fetch(const Panel* p, int g, int i) {
    KP_UNROLL
    for (int n = 0; n < kMatrices; ++n) {
      const kp_u8* from = unit_address<kKind>(p[n], g);
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
      const kp_u8* from = unit_address<kKind>(p[n], g);
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
template <int kKind, int kRows, int kAhead>
KP_DEV void fetch_inputs(const ProductArgs& a, int inputs, int from, int to, Flow<kRows, kAhead>& f) {
  KP_UNROLL
  for (int i = 0; i < kAhead; ++i)
    if (from + i < to)
      load_inputs<kKind, kRows>(f.row, kLateNorm<kAhead> ? (const float*)0 : a.norm.weight, inputs, from + i,
                                f.in[i]);
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

/// Sums over the parts and lanes of a block: value `index` that every thread has put into `exchange`
/// [index][lane], warp n from n * own floats on.
KP_DEV float sum_parts(const float* exchange, int own, int index) {
  float sum = 0.0f;
  KP_UNROLL
  for (int n = 0; n < kParts; ++n) sum += exchange[n * own + index * 32 + kp_lane()];
  return kp_sum32(sum);
}
