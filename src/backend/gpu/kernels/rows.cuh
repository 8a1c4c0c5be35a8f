// gather_sum, store_rows, copy_rows, advance, publish_frame.
#pragma once
#include "backend/gpu/kernels/common.cuh"

/// The row added behind the sums, or null after a fault.
KP_DEV const float* trailing_row(const GatherSumArgs& a, int slot) {
  const int step = a.stored_step[(kp_i64)slot * a.step_stride];
  if (step >= a.stored_count[(kp_i64)slot * a.count_stride]) return a.pad;
  if (step >= 0 && step < a.stored_capacity)
    return a.stored + ((kp_i64)slot * a.stored_capacity + step) * a.stored_stride;
  report(a.lanes, kFaultStored, step);
  return (const float*)0;
}

KP_DEV bool ids_are_valid(const GatherSumArgs& a, const int* ids) {
  for (int j = 0; j < a.tables; ++j)
    if (ids[j] >= a.table[j].rows) {
      report(a.lanes, kFaultId, ids[j]);
      return false;
    }
  return true;
}

/// 256 columns of one row a block; block b: columns from 256 * (b % parts) of row b / parts.
extern "C" __global__ void KP_BOUNDS(256) gather_sum(GatherSumArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int parts = (a.width + 255) / 256, row = kp_bid() / parts,
            column = (kp_bid() - row * parts) * 256 + kp_tid();
  const int lane = row / a.lanes.rows;
  const Lane l = read_lane(a.lanes, lane);
  if (row - lane * a.lanes.rows >= l.rows) return;
  const int* ids = a.ids + (a.ids_by_slot ? l.slot : row) * a.ids_stride;
  if (a.tables > 0 && !ids_are_valid(a, ids)) return;
  const float* trailing = a.stored ? trailing_row(a, l.slot) : (const float*)0;
  if ((a.stored && !trailing) || column >= a.width) return;
  bool empty = true;  // the first contribution is copied, the others are added
  float sum = 0.0f;
  if (a.add) sum = a.add[row * a.add_stride + column], empty = false;
  for (int j = 0; j < a.tables; ++j) {
    const int id = ids[j];
    if (id < 0) continue;
    const float value = table_value(a.table[j], (kp_i64)id * a.width + column);
    sum = empty ? value : sum + value;
    empty = false;
  }
  if (trailing) sum += trailing[column];
  a.out[row * a.out_stride + column] = sum;
}

/// One row a block.
extern "C" __global__ void KP_BOUNDS(256) store_rows(StoreRowsArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid(), lane = row / a.lanes.rows, r = row - lane * a.lanes.rows;
  const Lane l = read_lane(a.lanes, lane);
  if (r >= l.rows) return;
  if (l.position < 0 || l.position + l.rows > a.capacity) {
    report(a.lanes, kFaultPosition, l.position);
    return;
  }
  const float* from = a.x + row * a.x_stride;
  float* to = a.store + ((kp_i64)l.slot * a.capacity + l.position + r) * a.store_stride;
  for (int i = kp_tid(); i < a.width; i += 256) to[i] = from[i];
}

/// One output row a block.
extern "C" __global__ void KP_BOUNDS(256) copy_rows(CopyArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int lane = a.which == 0 ? kp_bid() / a.lanes.rows : kp_bid();
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows == 0) return;
  int from = kp_bid();
  if (a.which == 0 && from - lane * a.lanes.rows >= l.rows) return;
  if (a.which == 1) from = lane * a.lanes.rows + l.rows - 1;
  if (a.which == 2) from = l.slot;
  for (int i = kp_tid(); i < a.width; i += 256)
    a.out[kp_bid() * a.out_stride + i] = a.x[from * a.x_stride + i];
}

/// One lane a thread.
extern "C" __global__ void KP_BOUNDS(64) advance(AdvanceArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int lane = kp_bid() * 64 + kp_tid();
  if (lane >= a.lanes.lanes) return;
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows > 0) a.counter[(kp_i64)l.slot * a.counter_stride] += l.rows;
}

KP_DEV int& counter_at(const CounterArgs& c, int slot) { return c.data[(kp_i64)slot * c.stride]; }

/// What the host sees of a slot after this run, whether the lane took part or not.
KP_DEV void tell_host(const PublishArgs& a, int slot) {
  const HostRingArgs& h = a.host;
  const int sequence = h.beat[slot] + 1;
  int* entry = h.entries + ((kp_i64)slot * h.depth + (kp_u32)(sequence - 1) % (kp_u32)h.depth) * h.stride;
  for (int i = kp_tid(); i < a.groups; i += 64) entry[kRingCodes + i] = a.codes[slot * a.codes_stride + i];
  if (kp_tid() == 0) {
    entry[kRingStatus] = counter_at(a.status, slot);
    entry[kRingFrames] = counter_at(a.frames, slot);
    entry[kRingPosition] = counter_at(a.position, slot);
    entry[kRingSampled] = a.sampled.data ? counter_at(a.sampled, slot) : 0;
    entry[kRingStep] = a.step.data ? counter_at(a.step, slot) : 0;
  }
  kp_fence_system();
  kp_barrier();
  if (kp_tid() != 0) return;
  h.beat[slot] = sequence;
  kp_store_release_system(entry + kRingSequence, sequence);
}

/// One lane a block.
extern "C" __global__ void KP_BOUNDS(64) publish_frame(PublishArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int lane = kp_bid();
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows > 0) {
    const int frames = counter_at(a.frames, l.slot);
    int* to = a.ring + ((kp_i64)l.slot * a.ring_frames + frames % a.ring_frames) * a.ring_stride;
    for (int i = kp_tid(); i < a.groups; i += 64) to[i] = a.codes[l.slot * a.codes_stride + i];
    kp_barrier();  // all have read `frames` before it moves
    if (kp_tid() == 0) {
      const SlotSettingsArgs& settings = *(const SlotSettingsArgs*)(a.settings + l.slot * a.settings_stride);
      counter_at(a.frames, l.slot) = frames + 1;
      if (frames + 1 >= settings.max_frames)
        counter_at(a.status, l.slot) = 3;  // kLength
      else if (counter_at(a.position, l.slot) >= a.capacity)
        counter_at(a.status, l.slot) = 4;  // kCacheFull
    }
    kp_barrier();
  }
  if (a.host.entries && l.slot >= 0 && l.slot < a.host.slots && l.slot < a.lanes.slots) tell_host(a, l.slot);
}
