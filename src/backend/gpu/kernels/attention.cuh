// rope_angles, the placing of projected heads, and attention.
#pragma once
#include "backend/gpu/kernels/common.cuh"

/// One row a block.
extern "C" __global__ void KP_BOUNDS(128) rope_angles(RopeAnglesArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int row = kp_bid(), lane = row / a.lanes.rows;
  const Lane l = read_lane(a.lanes, lane);
  if (row - lane * a.lanes.rows >= l.rows) return;
  float* to = a.out + row * a.out_stride;
  const float position = (float)(l.position + row - lane * a.lanes.rows);
  for (int i = kp_tid(); i < a.half; i += 128)
    kp_cos_sin(position * a.inverse_frequency[i], to + i, to + a.half + i);
}

/// A row of a lane that stays inside the cache; faults are reported and make it -1.
struct CachedRow {
  int lane, slot, position;
};
KP_DEV CachedRow cached_row(const LaneArgs& a, const CacheArgs& cache, int row) {
  const int lane = a.rows == 1 ? row : row / a.rows, r = row - lane * a.rows;
  const Lane l = read_lane(a, lane);
  if (r >= l.rows) return {lane, -1, 0};
  // All rows of a lane or none: as if the whole op had been refused.
  if (l.position < 0 || (!cache.ring && l.position + l.rows > cache.capacity)) {
    report(a, kFaultPosition, l.position);
    return {lane, -1, 0};
  }
  return {lane, l.slot, l.position + r};
}

/// RMS norm of a head where there is one, and its rotation; a warp.
KP_DEV void rotate_head(const float* x, const float* norm, const float* rope, int width, float epsilon,
                        float* to) {
  const int half = width / 2, lane = kp_lane();
  float factor = 1.0f;
  if (norm) {
    float squares = 0.0f;
    for (int i = lane; i < width; i += 32) squares = kp_fma(x[i], x[i], squares);
    factor = 1.0f / kp_sqrt(kp_sum32(squares) / (float)width + epsilon);
  }
  for (int i = lane; i < half; i += 32) {
    const float low = norm ? norm[i] * (x[i] * factor) : x[i];
    const float high = norm ? norm[half + i] * (x[half + i] * factor) : x[half + i];
    const float c = rope[i], s = rope[half + i];
    to[i] = low * c - high * s;  // products are rounded before they are added, as in the reference
    to[half + i] = high * c + low * s;
  }
}

/// One head of one row a warp, to the place where it belongs.
KP_DEV void place_head(const PlaceHeadsArgs& a, const CachedRow& at, int row, int head) {
  const int width = a.head_dim;
  const float* x = a.projected + ((kp_i64)row * (a.heads + 2 * a.kv_heads) + head) * width;
  const kp_i64 cache_row = (kp_i64)at.slot * a.cache.capacity + at.position % a.cache.capacity;
  if (head >= a.heads + a.kv_heads) {
    float* to = a.cache.v + cache_row * a.cache.v_stride + (head - a.heads - a.kv_heads) * width;
    for (int i = kp_lane(); i < width; i += 32) to[i] = x[i];
    return;
  }
  const bool key = head >= a.heads;
  float* to = key ? a.cache.k + cache_row * a.cache.k_stride + (head - a.heads) * width
                  : a.q + row * a.q_stride + head * width;
  rotate_head(x, key ? a.k_norm : a.q_norm, a.rope + row * a.rope_stride, width, a.epsilon, to);
}

extern "C" __global__ void KP_BOUNDS(256) place_heads(PlaceHeadsArgs a) {
  kp_launch_dependents();
  kp_wait_previous();
  const int heads = a.heads + 2 * a.kv_heads, n = kp_bid() * 8 + kp_warp();
  const int row = n / heads;
  if (row >= a.lanes.lanes * a.lanes.rows) return;
  const CachedRow at = cached_row(a.lanes, a.cache, row);
  if (at.slot >= 0) place_head(a, at, row, n - row * heads);
}

// ---- attention
//
// A key belongs to one of 32 octets of lanes: key first + j of a block's range to octet j % 32. An octet
// keeps the largest score, the sum of exponentials and the weighted values of its keys. Octets are joined in
// their order, blocks in the order of their keys. The cut into blocks depends on the number of keys and on
// `splits` alone.

enum { kOctets = 32, kKeysPerSplit = 128 };

/// Partial softmax of some keys, the values of one lane: elements 4 (l + 8 i) .. + 3 for i < kChunks, l =
/// lane % 8.
template <int kChunks>
struct Partial {
  float most, total;
  float value[4 * kChunks];
};

/// kAligned: 16 bytes at a time, from a place that allows it, of a multiple of four elements.
template <int kChunks, bool kAligned>
KP_DEV void load_head(const float* from, int head_dim, float* to) {
  KP_UNROLL
  for (int i = 0; i < kChunks; ++i) {
    const int at = 4 * ((kp_lane() & 7) + 8 * i);
    if (kAligned) {
      const kp_u32x4 zero = {0, 0, 0, 0}, v = at < head_dim ? *(const kp_u32x4*)(from + at) : zero;
      to[4 * i] = kp_as_f32(v.x), to[4 * i + 1] = kp_as_f32(v.y), to[4 * i + 2] = kp_as_f32(v.z),
             to[4 * i + 3] = kp_as_f32(v.w);
    } else {
      KP_UNROLL
      for (int j = 0; j < 4; ++j) to[4 * i + j] = at + j < head_dim ? from[at + j] : 0.0f;
    }
  }
}

/// Which block of AttentionArgs this is. Divisions take long: they are made only where there is something to
/// divide.
struct AttentionBlock {
  int row, group, split;
};
KP_DEV AttentionBlock attention_block(const AttentionArgs& a) {
  AttentionBlock b = {0, kp_bid(), 0};
  if (a.splits > 1) b.group = kp_bid() / a.splits, b.split = kp_bid() - b.group * a.splits;
  if (b.group >= a.groups) b.row = b.group / a.groups, b.group -= b.row * a.groups;
  return b;
}
KP_DEV int kv_head_of(const AttentionArgs& a, int group) { return a.per_kv == 1 ? group : group / a.per_kv; }

/// Which keys a block works on.
struct KeyRange {
  int first, count;  ///< of this block
  int blocks;        ///< that share the row
};
KP_DEV KeyRange key_range(const AttentionArgs& a, int position, int split) {
  const int first = a.window > 0 ? kp_max_i(0, position - a.window + 1) : 0, keys = position - first + 1;
  if (keys <= kKeysPerSplit) return {first, keys, 1};
  const int wanted = kp_min_i(a.splits, (keys + kKeysPerSplit - 1) / kKeysPerSplit);
  const int size = ((keys + wanted - 1) / wanted + kOctets - 1) / kOctets * kOctets;
  const int blocks = (keys + size - 1) / size, begin = split * size;
  return {first + begin, kp_min_i(size, keys - begin), blocks};
}

/// The key and value of the row itself, where they are not in the cache yet.
struct FreshKey {
  const float *k, *v;
  int position;  ///< -1 = all keys are in the cache
};

template <int kChunks, bool kAligned>
KP_DEV void load_cached_key(const AttentionArgs& a, int slot, int position, int kv_head, float* k, float* v) {
  const int entry = position < a.cache.capacity ? position : position % a.cache.capacity;
  const kp_i64 row = (kp_i64)slot * a.cache.capacity + entry;
  load_head<kChunks, kAligned>(a.cache.k + row * a.cache.k_stride + kv_head * a.head_dim, a.head_dim, k);
  load_head<kChunks, kAligned>(a.cache.v + row * a.cache.v_stride + kv_head * a.head_dim, a.head_dim, v);
}
template <int kChunks, bool kAligned>
KP_DEV void load_fresh_key(const AttentionArgs& a, const FreshKey& fresh, float* k, float* v) {
  load_head<kChunks, kAligned>(fresh.k, a.head_dim, k);
  load_head<kChunks, kAligned>(fresh.v, a.head_dim, v);
}

/// The first key of an octet is taken as it is, later ones are weighed against those before. While one is
/// worked with the next is on its way, where registers allow. Queries and a fresh key are there after
/// ready().
template <int kChunks, int kHeads, bool kAligned, class Ready>
KP_DEV void attend_octet(const AttentionArgs& a, const float* q, int q_step, const CachedRow& at,
                         const KeyRange& range, int kv_head, const FreshKey& fresh, Ready&& ready,
                         Partial<kChunks>* out) {
  enum { kCount = 4 * kChunks, kPrefetch = kChunks <= 4 ? 1 : 0 };
  const int octet = kp_tid() >> 3;
  const auto position = [&](int j) { return range.first + kp_min_i(j + octet, range.count - 1); };
  float k[kCount], v[kCount], next_k[kPrefetch ? kCount : 1], next_v[kPrefetch ? kCount : 1];
  const auto load = [&](int key, float* to_k, float* to_v) {
    if (key == fresh.position)
      load_fresh_key<kChunks, kAligned>(a, fresh, to_k, to_v);
    else
      load_cached_key<kChunks, kAligned>(a, at.slot, key, kv_head, to_k, to_v);
  };
  if (position(0) != fresh.position) load_cached_key<kChunks, kAligned>(a, at.slot, position(0), kv_head, k, v);
  ready();
  if (position(0) == fresh.position) load_fresh_key<kChunks, kAligned>(a, fresh, k, v);
  float query[kHeads][kCount];
  KP_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    load_head<kChunks, kAligned>(q + h * q_step, a.head_dim, query[h]);
    out[h].most = -kp_infinity(), out[h].total = 0.0f;
    KP_UNROLL
    for (int i = 0; i < kCount; ++i) out[h].value[i] = 0.0f;
  }
  for (int j = 0; j < range.count; j += kOctets) {  // uniform: every lane takes part in the exchange
    const bool more = j + kOctets < range.count;
    if (kPrefetch) {
      if (more) load(position(j + kOctets), next_k, next_v);
    } else if (j > 0) {
      load(position(j), k, v);
    }
    KP_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      float dot = 0.0f;
      KP_UNROLL
      for (int i = 0; i < kCount; ++i) dot = kp_fma(query[h][i], k[i], dot);
      dot += kp_shfl_xor(dot, 4);
      dot += kp_shfl_xor(dot, 2);
      dot += kp_shfl_xor(dot, 1);
      if (j + octet >= range.count) continue;
      const float score = dot * a.scale;
      if (j == 0) {
        out[h].most = score, out[h].total = 1.0f;
        KP_UNROLL
        for (int i = 0; i < kCount; ++i) out[h].value[i] = v[i];
        continue;
      }
      if (score > out[h].most) {
        const float shrink = kp_exp(out[h].most - score);
        out[h].most = score, out[h].total *= shrink;
        KP_UNROLL
        for (int i = 0; i < kCount; ++i) out[h].value[i] *= shrink;
      }
      const float e = kp_exp(score - out[h].most);
      out[h].total += e;
      KP_UNROLL
      for (int i = 0; i < kCount; ++i) out[h].value[i] = kp_fma(e, v[i], out[h].value[i]);
    }
    if (kPrefetch) {
      KP_UNROLL
      for (int i = 0; i < kCount; ++i) k[i] = next_k[kPrefetch ? i : 0], v[i] = next_v[kPrefetch ? i : 0];
    }
  }
}

/// Softmax partials side by side: most[n], total[n] and values[n * stride] of one element, joined in order.
struct Joined {
  float most, total, value;
};
KP_DEV Joined join_all(const float* most, const float* total, const float* value, int step, int stride,
                       int count) {
  Joined j = {most[0], 0.0f, 0.0f};
  for (int n = 1; n < count; ++n) j.most = kp_max(j.most, most[n * step]);
  for (int n = 0; n < count; ++n) {
    const float share = kp_exp(most[n * step] - j.most);
    j.total = kp_fma(share, total[n * step], j.total);
    j.value = kp_fma(share, value[n * stride], j.value);
  }
  return j;
}

/// What the octets of a block leave for each other.
template <int kChunks, int kHeads>
struct alignas(16) AttentionShared {
  float value[kHeads][kOctets][32 * kChunks], most[kHeads][kOctets], total[kHeads][kOctets], row_most[kHeads];
  int last;
};

/// Brings the octets of a block to the largest of their scores, and leaves them.
template <int kChunks, int kHeads>
KP_DEV void leave_octets(int octets, const Partial<kChunks>* p, AttentionShared<kChunks, kHeads>& shared) {
  const int octet = kp_tid() >> 3, l = kp_lane() & 7;
  KP_UNROLL
  for (int h = 0; h < kHeads; ++h)
    if (l == 0) shared.most[h][octet] = p[h].most;  // -infinity without keys
  kp_barrier();
  KP_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    const float most = kp_max32(shared.most[h][kp_lane()]);
    if (kp_tid() == 0) shared.row_most[h] = most;
    if (octet >= octets) continue;
    const float share = kp_exp(p[h].most - most);
    if (l == 0) shared.total[h][octet] = p[h].total * share;
    KP_UNROLL
    for (int i = 0; i < 4 * kChunks; ++i)
      shared.value[h][octet][4 * (l + 8 * (i / 4)) + i % 4] = p[h].value[i] * share;
  }
  kp_barrier();
}

/// Whether this block is the last of those that share a row; the counter is left 0.
KP_DEV bool arrive_last(kp_u32* counter, int blocks, int* shared) {
  kp_fence();
  kp_barrier();
  if (kp_tid() == 0) {
    const bool last = kp_atomic_add(counter, 1u) == (kp_u32)(blocks - 1);
    if (last) *counter = 0;
    *shared = last;
  }
  kp_barrier();
  return *shared != 0;
}

/// Joins what the octets of a block have, and what the blocks of a row have, and stores the result.
template <int kChunks, int kHeads>
KP_DEV void finish_row(const AttentionArgs& a, const KeyRange& range, int row, int group, int split,
                       Partial<kChunks>* p, AttentionShared<kChunks, kHeads>& shared) {
  enum { kWidth = 32 * kChunks, kEntry = kWidth + 2 };
  const int octets = kp_min_i(kOctets, range.count);
  leave_octets<kChunks, kHeads>(octets, p, shared);
  float* const out = a.out + row * a.out_stride + group * kHeads * a.head_dim;
  float* const partial = a.partial + ((kp_i64)row * a.groups + group) * a.splits * kHeads * kEntry;
  for (int i = kp_tid(); i < kHeads * kWidth; i += 256) {
    const int h = i / kWidth, e = i - h * kWidth;
    float total = 0.0f, value = 0.0f;
    for (int o = 0; o < octets; ++o) total += shared.total[h][o], value += shared.value[h][o][e];
    if (range.blocks == 1) {
      if (e < a.head_dim) out[h * a.head_dim + e] = value / total;
      continue;
    }
    float* const to = partial + (split * kHeads + h) * kEntry;
    to[2 + e] = value;
    if (e == 0) to[0] = shared.row_most[h], to[1] = total;
  }
  if (range.blocks == 1) return;
  if (!arrive_last(a.arrived + (kp_i64)row * a.groups + group, range.blocks, &shared.last)) return;
  kp_fence();
  for (int i = kp_tid(); i < kHeads * kWidth; i += 256) {
    const int h = i / kWidth, e = i - h * kWidth;
    const float* from = partial + h * kEntry;
    const Joined j = join_all(from, from + 1, from + 2 + e, kHeads * kEntry, kHeads * kEntry, range.blocks);
    if (e < a.head_dim) out[h * a.head_dim + e] = j.value / j.total;
  }
}

/// Block b: row b / (groups * splits), a group of kHeads query heads that share a kv head, one range of keys.
template <int kChunks, int kHeads, bool kAligned>
KP_DEV void attend(const AttentionArgs& a, AttentionShared<kChunks, kHeads>& shared) {
  kp_launch_dependents();
  kp_wait_previous();
  const AttentionBlock b = attention_block(a);
  const int row = b.row, head = b.group * kHeads;
  const CachedRow at = cached_row(a.lanes, a.cache, row);
  if (at.slot < 0) return;
  const KeyRange range = key_range(a, at.position, b.split);
  if (b.split >= range.blocks) return;
  Partial<kChunks> p[kHeads];
  attend_octet<kChunks, kHeads, kAligned>(
      a, a.q + row * a.q_stride + head * a.head_dim, a.head_dim, at, range, kv_head_of(a, b.group),
      {0, 0, -1}, [] {}, p);
  finish_row<kChunks, kHeads>(a, range, row, b.group, b.split, p, shared);
}

#define ATTENTION(name, chunks, heads, aligned)                     \
  extern "C" __global__ void KP_BOUNDS(256) name(AttentionArgs a) { \
    __shared__ AttentionShared<chunks, heads> shared;               \
    attend<chunks, heads, aligned>(a, shared);                      \
  }
ATTENTION(attention_64_1, 2, 1, true)
ATTENTION(attention_64_2, 2, 2, true)
ATTENTION(attention_128_1, 4, 1, true)
ATTENTION(attention_128_2, 4, 2, true)
ATTENTION(attention_256_1, 8, 1, true)
ATTENTION(attention_any_256_1, 8, 1, false)

// ---- both at once, for one row a lane: see backend/gpu/fusion.h

/// What is made of a block's own projections: the queries and the new key. Read 16 bytes at a time.
template <int kChunks, int kHeads>
struct alignas(16) PlacedShared {
  float q[kHeads][32 * kChunks], k[32 * kChunks];
};

/// place_heads and attention of one row. Each block makes its queries, and those whose range ends with the
/// row itself its key; the first of them for a kv head stores key and value. Bits are those of the two.
template <int kChunks, int kHeads>
KP_DEV void attend_placed(const PlacedAttentionArgs& placed, AttentionShared<kChunks, kHeads>& shared,
                          PlacedShared<kChunks, kHeads>& own) {
  const AttentionArgs& a = placed.attention;
  kp_launch_dependents();
  const AttentionBlock b = attention_block(a);
  const int row = b.row, head = b.group * kHeads, kv_head = kv_head_of(a, b.group), width = a.head_dim;
  const float* const x = placed.projected + (kp_i64)row * (a.heads + 2 * a.kv_heads) * width;
  const float* const v = x + (a.heads + a.kv_heads + kv_head) * width;
  const float* const rope = placed.rope + row * placed.rope_stride;
  kp_wait_previous();
  // Nothing of this needs to know the row's place, which takes two loads one after the other.
  if (kp_warp() < kHeads)
    rotate_head(x + (head + kp_warp()) * width, placed.q_norm, rope, width, placed.epsilon, own.q[kp_warp()]);
  else if (kp_warp() == kHeads)
    rotate_head(x + (a.heads + kv_head) * width, placed.k_norm, rope, width, placed.epsilon, own.k);
  const CachedRow at = cached_row(a.lanes, a.cache, row);
  if (at.slot < 0) return;
  const KeyRange range = key_range(a, at.position, b.split);
  if (b.split >= range.blocks) return;
  const bool last = b.split == range.blocks - 1;
  Partial<kChunks> p[kHeads];
  attend_octet<kChunks, kHeads, true>(
      a, own.q[0], 32 * kChunks, at, range, kv_head, {own.k, v, last ? at.position : -1},
      [] { kp_barrier(); }, p);
  if (last && b.group == kv_head * a.per_kv) {
    const kp_i64 to = (kp_i64)at.slot * a.cache.capacity + at.position % a.cache.capacity;
    for (int i = kp_tid(); i < width; i += 256) {
      a.cache.k[to * a.cache.k_stride + kv_head * width + i] = own.k[i];
      a.cache.v[to * a.cache.v_stride + kv_head * width + i] = v[i];
    }
  }
  finish_row<kChunks, kHeads>(a, range, row, b.group, b.split, p, shared);
}

#define ATTENTION_PLACED(name, chunks, heads)                             \
  extern "C" __global__ void KP_BOUNDS(256) name(PlacedAttentionArgs a) { \
    __shared__ AttentionShared<chunks, heads> shared;                     \
    __shared__ PlacedShared<chunks, heads> own;                           \
    attend_placed<chunks, heads>(a, shared, own);                         \
  }
ATTENTION_PLACED(attention_placed_64_1, 2, 1)
ATTENTION_PLACED(attention_placed_64_2, 2, 2)
ATTENTION_PLACED(attention_placed_128_1, 4, 1)
ATTENTION_PLACED(attention_placed_128_2, 4, 2)
ATTENTION_PLACED(attention_placed_256_1, 8, 1)
