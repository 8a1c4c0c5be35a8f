// What the encoders of reference audio need beyond the decoder's kernels: padded input rows of convolutions,
// the log-mel spectrum, statistics over rows, scaled rows, the nearest entry of a codebook.
#pragma once
#include "backend/gpu/kernels/common.cuh"

enum { kPadZero = 0, kPadReplicate = 1, kPadReflect = 2 };

KP_DEV float padded_value(const PaddedArgs& a, const Lane& l, int lane, int r, int column) {
  const int n = l.rows;
  if (a.padding == kPadReflect) {
    r = r < 0 ? -r : r >= n ? 2 * (n - 1) - r : r;
  } else if (r < 0 && a.padding == kPadReplicate && l.position == 0) {
    r = 0;
  } else if (r < 0) {
    return a.state[((kp_i64)l.slot * a.history + a.history + r) * a.state_stride + column];
  } else if (r >= n) {
    if (a.padding == kPadZero) return 0.0f;
    r = n - 1;
  }
  const kp_i64 row = (kp_i64)lane * a.lanes.rows + r;
  float x = a.x[row * a.x_stride + column];
  if (a.add) x = x + a.add[row * a.add_stride + column];
  return kp_activate(a.before, x);
}

/// Thread: one element of the staged rows. Block b: elements from 256 b of [lanes][whole][width], the width
/// rounded up to units.
extern "C" __global__ void KP_BOUNDS(256) stage_padded(PaddedArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const kp_u32 at = (kp_u32)kp_bid() * 256 + (kp_u32)kp_tid(), padded = (kp_u32)staged_width(a.width);
  const int staged = (int)(at / padded), column = (int)(at - (kp_u32)staged * padded),
            lane = staged / a.whole;
  if (lane >= a.lanes.lanes) return;
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows == 0) return;
  if (a.padding == kPadReflect && l.rows <= a.behind) {
    if (staged == lane * a.whole && column == 0) report(a.lanes, kFaultShort, l.rows);
    return;
  }
  const int r = staged - lane * a.whole - a.history;
  const int end = a.padding == kPadReflect ? l.rows + a.behind
                                           : (l.rows + a.conv_stride - 1) / a.conv_stride * a.conv_stride;
  if (r < end)
    a.out[staged_offset((kp_i64)a.lanes.lanes * a.whole * kUnitInputs, staged, column)] =
        column < a.width ? padded_value(a, l, lane, r, column) : 0.0f;
}

// ---- log-mel

enum { kMelThreads = 256 };

/// Sample i of a lane of n, mirrored at both ends, under the window.
KP_DEV double windowed(const LogMelArgs& a, int lane, int n, int start, int i) {
  int at = start + i;
  at = at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
  double c, s;
  kp_cos_sin_d(6.283185307179586477 * i / a.fft, &c, &s);
  const float window = (float)(0.5 - 0.5 * c);
  return (double)window * (double)a.x[((kp_i64)lane * a.lanes.rows + at) * a.x_stride];
}

/// In place: z[k] = sum over n of z[n] exp(-2 pi i k n / fft), the input in bit-reversed order.
KP_DEV void transform(const LogMelArgs& a, double* re, double* im) {
  for (int half = 1; half < a.fft; half <<= 1) {
    kp_barrier();
    for (int b = kp_tid(); b < a.fft / 2; b += kMelThreads) {
      const int k = b & (half - 1), low = (b - k) * 2 + k, high = low + half;
      double c, s;
      kp_cos_sin_d(3.141592653589793238 * k / half, &c, &s);
      const double turned_re = c * re[high] + s * im[high], turned_im = c * im[high] - s * re[high];
      re[high] = re[low] - turned_re, im[high] = im[low] - turned_im;
      re[low] = re[low] + turned_re, im[low] = im[low] + turned_im;
    }
  }
  kp_barrier();
}

/// One frame a block; shared memory: fft complex numbers in two planes. In double precision, as the reference
/// front end is float32 up to its own rounding.
extern "C" __global__ void KP_BOUNDS(256) log_mel(LogMelArgs a) {
  KP_DYN_SHARED(double, re);
  double* const im = re + a.fft;
  kp_launch_dependents();
  kp_wait_previous();
  const int per_lane = a.lanes.rows / a.hop, lane = kp_bid() / per_lane, frame = kp_bid() - lane * per_lane;
  const Lane l = read_lane(a.lanes, lane);
  const int padding = (a.fft - a.hop) / 2;
  if (l.rows == 0) return;
  if (l.rows <= padding) {
    if (frame == 0 && kp_tid() == 0) report(a.lanes, kFaultShort, l.rows);
    return;
  }
  if (frame >= l.rows / a.hop) return;
  for (int i = kp_tid(); i < a.fft; i += kMelThreads) {
    int reversed = 0;
    for (int bit = 0; bit < a.log2_fft; ++bit) reversed |= (i >> bit & 1) << (a.log2_fft - 1 - bit);
    re[reversed] = windowed(a, lane, l.rows, frame * a.hop - padding, i);
    im[reversed] = 0.0;
  }
  transform(a, re, im);
  const int bins = a.fft / 2 + 1;
  for (int k = kp_tid(); k < bins; k += kMelThreads)  // a thread reads what it replaces
    re[k] = kp_sqrt_d(re[k] * re[k] + im[k] * im[k] + 1e-9);
  kp_barrier();
  for (int band = kp_warp(); band < a.bands; band += kMelThreads / 32) {  // uniform within a warp
    double sum = 0.0;
    for (int k = kp_lane(); k < bins; k += 32) sum += (double)a.filters[(kp_i64)band * bins + k] * re[k];
    sum = kp_sum32_d(sum);
    if (kp_lane() == 0)
      a.out[((kp_i64)lane * per_lane + frame) * a.out_stride + band] =
          (float)kp_log_d(sum > (double)a.floor ? sum : (double)a.floor);
  }
}

// ---- statistics

/// Sum over the 8 warps of a block of what their lanes have; every thread calls it and gets it.
KP_DEV double sum_warps(double v, double (*part)[32]) {
  kp_barrier();  // whoever still reads the last sums
  part[kp_warp()][kp_lane()] = v;
  kp_barrier();
  double sum = 0.0;
  for (int w = 0; w < 8; ++w) sum += part[w][kp_lane()];
  return sum;
}

/// 32 channels of one lane a block, a channel a lane of each warp; the warps share the rows.
extern "C" __global__ void KP_BOUNDS(256) statistics(StatisticsArgs a) {
  __shared__ double part[8][32];
  kp_launch_dependents();
  kp_wait_previous();
  const int strips = (a.width + 31) / 32, lane = kp_bid() / strips;
  const int channel = (kp_bid() - lane * strips) * 32 + kp_lane(), c = kp_min_i(channel, a.width - 1);
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows == 0) return;
  const float* const x = a.x + (kp_i64)lane * a.lanes.rows * a.x_stride + c;
  const float* const scores = a.scores ? a.scores + (kp_i64)lane * a.lanes.rows * a.scores_stride + c : 0;
  float most = -kp_infinity();
  if (scores)
    for (int r = 0; r < l.rows; ++r) most = kp_max(most, scores[r * a.scores_stride]);
  double total = 0.0, mean = 0.0, spread = 0.0;
  for (int r = kp_warp(); r < l.rows; r += 8) {
    const double w = scores ? (double)kp_exp(scores[r * a.scores_stride] - most) : 1.0;
    total += w, mean += w * (double)x[r * a.x_stride];
  }
  total = sum_warps(total, part);
  mean = sum_warps(mean, part) / total;
  float* const out = a.out + lane * a.out_stride;
  const bool stores = kp_warp() == 0 && channel < a.width;
  if (stores) out[c] = (float)mean;
  if (!a.deviations) return;
  for (int r = kp_warp(); r < l.rows; r += 8) {
    const double w = scores ? (double)kp_exp(scores[r * a.scores_stride] - most) : 1.0;
    const double d = (double)x[r * a.x_stride] - mean;
    spread += w * d * d;
  }
  spread = sum_warps(spread, part) / total;
  if (stores) out[a.width + c] = (float)kp_sqrt_d(spread > 1e-12 ? spread : 1e-12);
}

/// 256 columns of one row a block; block b: columns from 256 * (b % parts) of row b / parts.
extern "C" __global__ void KP_BOUNDS(256) scale_rows(ScaleRowsArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int parts = (a.width + 255) / 256, row = kp_bid() / parts,
            column = (kp_bid() - row * parts) * 256 + kp_tid();
  if (column >= a.width || !row_counts(a.lanes, row)) return;
  const float y = a.x[row * a.x_stride + column] * a.gate[row / a.lanes.rows * a.gate_stride + column];
  a.out[row * a.out_stride + column] = a.residual ? a.residual[row * a.residual_stride + column] + y : y;
}

// ---- the nearest entry

/// Every float32 sum within this of the largest, relative to the size of its terms, may belong to the
/// nearest.
KP_DEV float code_doubt() { return 1e-5f; }

KP_DEV double code_distance(const NearestCodeArgs& a, const float* x, int code) {
  const float* const entry = a.entries + (kp_i64)code * a.width;
  double sum = 0.0;
  for (int j = 0; j < a.width; ++j) {
    const double d = (double)x[j] - (double)entry[j];
    sum += d * d;
  }
  return sum;
}

/// One row a block.
extern "C" __global__ void KP_BOUNDS(256) nearest_code(NearestCodeArgs a) {
  __shared__ float part[8], most[8], longest[8];
  __shared__ kp_u64 least[8];
  __shared__ int index[8];
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid();
  if (!row_counts(a.lanes, row)) return;
  const float* const x = a.x + row * a.x_stride;
  const float* const scores = a.scores + (kp_i64)row * a.count;
  float square = 0.0f, best = -kp_infinity(), length = 0.0f;
  for (int j = kp_tid(); j < a.width; j += 256) square = kp_fma(x[j], x[j], square);
  for (int c = kp_tid(); c < a.count; c += 256)
    best = kp_max(best, scores[c]), length = kp_max(length, -a.half_square[c]);
  best = kp_max32(best), length = kp_max32(length);
  if (kp_lane() == 0) most[kp_warp()] = best, longest[kp_warp()] = length;
  square = sum256(square, part);  // its barrier is theirs too
  for (int w = 0; w < 8; ++w) best = kp_max(best, most[w]), length = kp_max(length, longest[w]);
  const float limit = best - code_doubt() * (square + length);
  kp_u64 d = 0x7ff0000000000000ull;  // infinity; distances are positive, so their bits are in their order
  int code = 0;
  for (int c = kp_tid(); c < a.count; c += 256) {
    if (!(scores[c] >= limit)) continue;
    const kp_u64 its = bits_of(code_distance(a, x, c));
    if (its < d) d = its, code = c;
  }
  KP_UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) {
    const kp_u64 its = shfl_xor_64(d, mask);
    const int other = (int)kp_shfl_xor_u((kp_u32)code, mask);
    if (its < d || (its == d && other < code)) d = its, code = other;
  }
  if (kp_lane() == 0) least[kp_warp()] = d, index[kp_warp()] = code;
  kp_barrier();
  for (int w = 0; w < 8; ++w)
    if (least[w] < d || (least[w] == d && index[w] < code)) d = least[w], code = index[w];
  if (kp_tid() == 0) a.codes[row * a.codes_stride] = code;
  if (!a.remainder) return;
  // The remainder may lie where x does: all sums over x were taken before the last barrier.
  for (int j = kp_tid(); j < a.width; j += 256)
    a.remainder[row * a.remainder_stride + j] = x[j] - a.entries[(kp_i64)code * a.width + j];
}
