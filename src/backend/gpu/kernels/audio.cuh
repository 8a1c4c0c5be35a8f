// Depthwise convolutions.
#pragma once
#include "backend/gpu/kernels/common.cuh"

/// One channel of one lane a thread, which alone touches its state.
extern "C" __global__ void KP_BOUNDS(64) depthwise(DepthwiseArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int parts = (a.channels + 63) / 64, lane = kp_bid() / parts,
            c = (kp_bid() - lane * parts) * 64 + kp_tid();
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows == 0 || c >= a.channels) return;
  const int history = a.taps - 1;
  const float* x = a.x + (kp_i64)lane * a.lanes.rows * a.x_stride + c;
  float* state = a.state + (kp_i64)l.slot * history * a.state_stride + c;
  for (int r = 0; r < l.rows; ++r) {
    float sum = 0.0f;
    for (int t = 0; t < a.taps; ++t) {
      const int from = r - history + t;
      const float in = from >= 0 ? x[from * a.x_stride] : state[(history + from) * a.state_stride];
      sum = kp_fma(in, a.weight[(kp_i64)t * a.channels + c], sum);
    }
    a.out[((kp_i64)lane * a.lanes.rows + r) * a.out_stride + c] = a.bias ? sum + a.bias[c] : sum;
  }
  for (int h = 0; h < history; ++h) {  // ascending: a row is overwritten only after it moved up
    const int from = l.rows - history + h;
    state[h * a.state_stride] = from >= 0 ? x[from * a.x_stride] : state[(history + from) * a.state_stride];
  }
}
