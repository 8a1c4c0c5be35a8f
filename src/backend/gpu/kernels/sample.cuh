// One draw from a row of logits, wholly on the device. Follows src/backend/cpu/sampler.cc and philox.h draw
// for draw; sums of probabilities run in double precision, so that their order does not show.
#pragma once
#include "backend/gpu/kernels/common.cuh"

// What every warp does counts, not how many scores a thread has: more threads take longer.
enum { kSampleThreads = 512, kSampleWarps = 16, kBins = 2048, kBinsEach = kBins / kSampleThreads, kFewCandidates = 64 };

/// Shared memory of a draw besides the scores.
struct SampleShared {
  kp_u64 part[kSampleWarps];
  kp_u32 few[kFewCandidates];
  kp_u32 digit, remaining, count, listed, least;
  kp_u32 bad;   ///< logits that are not finite
  kp_u32 kept;  ///< scores above 0 after softmax(), of which `few` lists the first
};

/// Largest value of the block, in every thread.
KP_DEV kp_u64 block_max(kp_u64 v, kp_u64* part) {
  for (int half = 16; half > 0; half >>= 1) {
    const kp_u64 other = shfl_xor_64(v, half);
    v = other > v ? other : v;
  }
  kp_barrier();  // whoever still reads the last result
  if (kp_lane() == 0) part[kp_warp()] = v;
  kp_barrier();
  v = part[kp_lane() & (kSampleWarps - 1)];
  for (int half = kSampleWarps / 2; half > 0; half >>= 1) {
    const kp_u64 other = shfl_xor_64(v, half);
    v = other > v ? other : v;
  }
  return v;
}
KP_DEV double block_sum(double v, kp_u64* part) {
  v = kp_sum32_d(v);
  kp_barrier();
  if (kp_lane() == 0) part[kp_warp()] = bits_of(v);
  kp_barrier();
  v = double_of(part[kp_lane() & (kSampleWarps - 1)]);
  for (int half = kSampleWarps / 2; half > 0; half >>= 1) v += double_of(shfl_xor_64(bits_of(v), half));
  return v;
}

/// Unsigned numbers in the order of the floats; both zeros are one number.
KP_DEV kp_u32 ordered(float x) {
  const kp_u32 u = kp_as_u32(x + 0.0f);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
KP_DEV float unordered(kp_u32 o) { return kp_as_f32(o & 0x80000000u ? o & 0x7fffffffu : ~o); }
KP_DEV float removed() { return -kp_infinity(); }

KP_DEV void philox(kp_u32* c, kp_u32 k0, kp_u32 k1) {
  for (int round = 0; round < 10; ++round) {
    const kp_u64 a = (kp_u64)0xD2511F53u * c[0], b = (kp_u64)0xCD9E8D57u * c[2];
    c[0] = (kp_u32)(b >> 32) ^ c[1] ^ k0, c[2] = (kp_u32)(a >> 32) ^ c[3] ^ k1;
    c[1] = (kp_u32)b, c[3] = (kp_u32)a;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}

/// The exponential number of candidate `index`.
KP_DEV float exponential_noise(const SlotSettingsArgs& s, kp_u32 index, kp_u32 frame, kp_u32 group) {
  kp_u32 c[4] = {index / 4, frame, group, 0};
  philox(c, s.seed_low, s.seed_high);
  const kp_u32 at = index & 3, bits = at == 0 ? c[0] : at == 1 ? c[1] : at == 2 ? c[2] : c[3];
  return kp_minus_log((float)((bits >> 8) + 1) * 0x1p-24f);
}

/// What a draw works with. A thread keeps to its own scores: thread, thread + 512, ...
struct Draw {
  float* score;
  kp_u64* list;  ///< for top-p: vocabulary rounded up to a power of two
  SampleShared* shared;
  int n;
};
#define KP_OWN(i, n) for (int i = kp_tid(); i < (n); i += kSampleThreads)

/// Raw logits into the scores; those that are not finite are counted.
KP_DEV void load_logits(const Draw& d, const float* logits) {
  kp_u32 bad = 0;
  KP_OWN(i, d.n) {
    const float x = logits[i];
    d.score[i] = x;
    if (!(kp_abs(x) < kp_infinity())) ++bad;
  }
  if (bad > 0) kp_shared_add(&d.shared->bad, bad);
}

/// Repetition penalty once per distinct id, suppression, minimum length.
KP_DEV void restrict_ids(const SampleArgs& a, const Draw& d, const SamplerSettingsArgs& s, const kp_u8* seen,
                         bool forbid_stop) {
  KP_OWN(i, d.n) {
    float x = d.score[i];
    if (seen && s.repetition_penalty != 1.0f && seen[i])
      x = x < 0.0f ? x * s.repetition_penalty : x / s.repetition_penalty;
    if (i >= a.codes_count && i != a.stop_id) x = removed();
    if (i == a.stop_id && forbid_stop) x = removed();
    d.score[i] = x;
  }
}

/// Lowest id of the largest score.
KP_DEV int largest(const Draw& d) {
  kp_u64 best = 0;
  KP_OWN(i, d.n) {
    const kp_u64 it = (kp_u64)ordered(d.score[i]) << 32 | (0xffffffffu - (kp_u32)i);
    best = it > best ? it : best;
  }
  return (int)(0xffffffffu - (kp_u32)block_max(best, d.shared->part));
}

/// Sum of v over this lane and those above it in the virtual warp.
KP_DEV kp_u32 sum_from_here(kp_u32 v) {
  KP_UNROLL
  for (int step = 1; step < 32; step <<= 1) {
    const kp_u32 above = kp_shfl_u(v, kp_min_i(kp_lane() + step, 31));
    if (kp_lane() + step < 32) v += above;
  }
  return v;
}

/// The bin that holds the `remaining`-th largest, counted from the last bin down; thread t looks after
/// kBinsEach of them.
KP_DEV void find_bin(SampleShared* s, const kp_u32* bins) {
  const kp_u32* mine = bins + kBinsEach * kp_tid();
  kp_u32 own = 0;
  const kp_u32 wanted = s->remaining;
  KP_UNROLL
  for (int i = 0; i < kBinsEach; ++i) own += mine[i];
  const kp_u32 in_warp = sum_from_here(own);
  if (kp_lane() == 0) s->part[kp_warp()] = in_warp;
  kp_barrier();
  kp_u32 above = in_warp - own;
  for (int w = kp_warp() + 1; w < kSampleWarps; ++w) above += (kp_u32)s->part[w];
  if (above >= wanted || above + own < wanted) return;
  int bin = kBinsEach - 1;
  while (above + mine[bin] < wanted) above += mine[bin--];
  s->digit = (kp_u32)(kBinsEach * kp_tid() + bin);
  s->remaining = wanted - above;
  s->count = mine[bin];
}

/// The `remaining`-th largest of the few candidates that share the bits in `mask`.
KP_DEV kp_u32 find_among_few(const Draw& d, kp_u32 least, kp_u32 mask) {
  SampleShared* s = d.shared;
  const kp_u32 count = s->count, wanted = s->remaining;
  if (kp_tid() == 0) s->listed = 0;
  kp_barrier();
  KP_OWN(i, d.n) {
    const kp_u32 o = ordered(d.score[i]);
    if ((o & mask) == least) s->few[kp_shared_take(&s->listed)] = o;
  }
  kp_barrier();
  // Four lanes count for one candidate: kSampleThreads / 4 of them are all there can be.
  const kp_u32 own = (kp_u32)kp_tid() / 4, mine = own < count ? s->few[own] : 0;
  kp_u32 larger = 0, equal = 0, before = 0;
  for (kp_u32 i = kp_tid() & 3; i < count; i += 4) {
    const kp_u32 it = s->few[i];
    larger += it > mine, equal += it == mine, before += it == mine && i < own;
  }
  KP_UNROLL
  for (int mask = 1; mask <= 2; mask <<= 1) {
    larger += kp_shfl_xor_u(larger, mask), equal += kp_shfl_xor_u(equal, mask);
    before += kp_shfl_xor_u(before, mask);
  }
  if ((kp_tid() & 3) == 0 && own < count && before == 0 && larger < wanted && wanted <= larger + equal) s->least = mine;
  kp_barrier();
  return s->least;
}

KP_DEV void clear_bins(kp_u32* bins) { KP_OWN(i, kBins) bins[i] = 0; }

/// Removes what is smaller than the k-th largest score; ties of that one stay. A radix search, 11 bits a
/// round, until few candidates are left. The bins, empty at first, lie where top-p has its list.
KP_DEV void keep_top_k(const Draw& d, int k) {
  if (k <= 0 || k >= d.n) return;
  SampleShared* s = d.shared;
  kp_u32* const bins = (kp_u32*)d.list;
  kp_u32 least = 0, mask = 0;
  if (kp_tid() == 0) s->remaining = (kp_u32)k;
  for (int shift = 21; shift >= -1; shift -= 11) {
    const int down = kp_max_i(shift, 0);  // the last round has 10 bits of its own
    if (mask != 0) clear_bins(bins);  // they were for the first round
    kp_barrier();
    KP_OWN(i, d.n) {
      const kp_u32 o = ordered(d.score[i]);
      if ((o & mask) == least) kp_shared_add(&bins[(o & ~mask) >> down], 1);
    }
    kp_barrier();
    find_bin(s, bins);
    kp_barrier();
    least |= s->digit << down, mask |= 0xffffffffu << down;
    if (s->count == s->remaining || down == 0) break;  // everything that shares these bits stays
    if (s->count <= kFewCandidates) {
      least = find_among_few(d, least, mask);
      break;
    }
    kp_barrier();  // all have read what the next round changes
  }
  KP_OWN(i, d.n) if (ordered(d.score[i]) < least) d.score[i] = removed();
}

/// Ascending sort of a power of two of numbers.
KP_DEV void sort_list(kp_u64* list, int size) {
  for (int run = 2; run <= size; run <<= 1)
    for (int step = run >> 1; step > 0; step >>= 1) {
      kp_barrier();
      KP_OWN(i, size >> 1) {
        const int low = (i & ~(step - 1)) << 1 | (i & (step - 1)), high = low | step;
        const kp_u64 a = list[low], b = list[high];
        if ((a > b) == ((low & run) == 0)) list[low] = b, list[high] = a;
      }
    }
  kp_barrier();
}

/// Lists what is not removed, ascending by score and then by id; returns how many there are.
KP_DEV int list_scores(const Draw& d, int* size) {
  kp_barrier();
  if (kp_tid() == 0) d.shared->listed = 0;
  kp_barrier();
  KP_OWN(i, d.n) if (d.score[i] > removed()) {
    const kp_u32 at = kp_shared_take(&d.shared->listed);
    d.list[at] = (kp_u64)ordered(d.score[i]) << 32 | (kp_u32)i;
  }
  kp_barrier();
  const int count = (int)d.shared->listed;
  *size = 1;
  while (*size < count) *size <<= 1;
  for (int i = count + kp_tid(); i < *size; i += kSampleThreads) d.list[i] = ~(kp_u64)0;
  sort_list(d.list, *size);
  return count;
}

/// Sum of the values of all threads before this one. `part` as in block_sum().
KP_DEV double block_sum_before(double v, kp_u64* part) {
  double upto = v;
  KP_UNROLL
  for (int step = 1; step < 32; step <<= 1) {
    const kp_u64 bits = bits_of(upto);
    const int from = kp_max_i(kp_lane() - step, 0);
    const double other =
        double_of((kp_u64)kp_shfl_u((kp_u32)(bits >> 32), from) << 32 | kp_shfl_u((kp_u32)bits, from));
    if (kp_lane() >= step) upto += other;
  }
  kp_barrier();
  if (kp_lane() == 31) part[kp_warp()] = bits_of(upto);
  kp_barrier();
  double before = 0.0;
  for (int w = 0; w < kp_warp(); ++w) before += double_of(part[w]);
  return before + (upto - v);
}

/// Removes the smallest scores while their cumulative probability is at most 1 - p; the largest always stays.
KP_DEV void keep_top_p(const Draw& d, float p) {
  if (p >= 1.0f) return;
  int size;
  const int count = list_scores(d, &size);
  const float most = unordered((kp_u32)(d.list[count - 1] >> 32)), limit = 1.0f - p;
  double total = 0.0;
  KP_OWN(i, count) total += (double)kp_exp(unordered((kp_u32)(d.list[i] >> 32)) - most);
  const float sum = (float)block_sum(total, d.shared->part);
  // Thread t takes the entries from t * each on.
  const int each = (count + kSampleThreads - 1) / kSampleThreads, first = kp_min_i(kp_tid() * each, count);
  const int end = kp_min_i(first + each, count);
  double own = 0.0;
  for (int i = first; i < end; ++i)
    own += (double)(kp_exp(unordered((kp_u32)(d.list[i] >> 32)) - most) / sum);
  double cumulative = block_sum_before(own, d.shared->part);
  for (int i = first; i < end && i < count - 1; ++i) {
    cumulative += (double)(kp_exp(unordered((kp_u32)(d.list[i] >> 32)) - most) / sum);
    if ((float)cumulative > limit) break;
    d.score[(kp_u32)d.list[i]] = removed();
  }
  kp_barrier();
}

/// Scores become probabilities; removed ones 0. `listed`: few are left, and are listed.
KP_DEV void softmax(const Draw& d, bool listed) {
  kp_u64 best = 0;
  KP_OWN(i, d.n) {
    const kp_u64 o = ordered(d.score[i]);
    best = o > best ? o : best;
  }
  const float most = unordered((kp_u32)block_max(best, d.shared->part));
  double total = 0.0;
  KP_OWN(i, d.n) {
    d.score[i] = d.score[i] == removed() ? 0.0f : kp_exp(d.score[i] - most);
    total += (double)d.score[i];
  }
  const float sum = (float)block_sum(total, d.shared->part);
  KP_OWN(i, d.n) {
    if (!(d.score[i] > 0.0f)) continue;
    d.score[i] = d.score[i] / sum;
    if (!listed) continue;
    const kp_u32 at = kp_shared_take(&d.shared->kept);
    if (at < kFewCandidates) d.shared->few[at] = (kp_u32)i;
  }
}

/// argmax of probability / noise, lowest id on ties; -1 when nothing can be drawn. Noise takes long, so a few
/// candidates that softmax() has `listed` get a thread each.
KP_DEV int pick(const SampleArgs& a, const Draw& d, const SlotSettingsArgs& s, const float* noise,
                kp_u32 frame, bool listed) {
  kp_u64 best = 0;
  kp_barrier();
  const bool few = listed && d.shared->kept <= kFewCandidates;
  KP_OWN(t, few ? (int)d.shared->kept : d.n) {
    const int i = few ? (int)d.shared->few[t] : t;
    if (!(d.score[i] > 0.0f)) continue;
    const float ratio =
        d.score[i] / (noise ? noise[i] : exponential_noise(s, (kp_u32)i, frame, (kp_u32)a.group));
    if (!(ratio > -1.0f)) continue;
    const kp_u64 it = (kp_u64)ordered(ratio) << 32 | (0xffffffffu - (kp_u32)i);
    best = it > best ? it : best;
  }
  best = block_max(best, d.shared->part);
  return best == 0 ? -1 : (int)(0xffffffffu - (kp_u32)best);
}

/// The drawn or forced id; -1 when a logit is not finite.
KP_DEV int draw(const SampleArgs& a, const Draw& d, const SlotSettingsArgs& s, int lane, const Lane& l,
                int drawn, int forced) {
  const SamplerSettingsArgs& mine = a.group == 0 ? s.talker : s.predictor;
  restrict_ids(a, d, mine, a.seen ? a.seen + l.slot * a.seen_stride : (const kp_u8*)0,
               a.group == 0 && drawn < mine.min_new_tokens);
  const bool greedy = mine.greedy != 0 || !(mine.temperature > 0.0f), probs = a.probs && s.want_probs;
  int id = -1;
  if (greedy) {
    id = largest(d);
  } else {
    if (mine.temperature != 1.0f) KP_OWN(i, d.n) d.score[i] = d.score[i] / mine.temperature;
    keep_top_k(d, mine.top_k);
    keep_top_p(d, mine.top_p);
  }
  const bool listed = !greedy && mine.top_k > 0 && mine.top_k <= kFewCandidates;
  if (!greedy || probs) softmax(d, listed);
  if (d.shared->bad > 0) return -1;  // a barrier lies between: the search of a largest has some
  if (probs) KP_OWN(i, d.n) a.probs[lane * a.probs_stride + i] = d.score[i];
  if (forced >= 0) return forced;
  if (greedy) return id;
  return pick(a, d, s, s.recorded_noise ? a.noise + l.slot * a.noise_stride : (const float*)0, (kp_u32)drawn,
              listed);
}

/// What needs nothing of the launch before.
KP_DEV void prepare_draw(kp_u64* list, SampleShared& shared) {
  if (kp_tid() == 0) shared.bad = shared.kept = 0;
  clear_bins((kp_u32*)list);
  kp_barrier();
}

/// One lane a block, after prepare_draw().
KP_DEV void draw_lane(const SampleArgs& a, int lane, kp_u64* list, SampleShared& shared) {
  int size = kBins / 2;
  while (size < a.vocabulary) size <<= 1;
  const Draw d = {(float*)(list + size), list, &shared, a.vocabulary};
  const int slot = ask_slot(a.lanes, lane), some = kp_min_i(kp_max_i(slot, 0), a.lanes.slots - 1);
  load_logits(d, a.logits + lane * a.logits_stride);
  const int forced = a.forced[some * a.forced_stride + a.group];
  const SlotSettingsArgs& s = *(const SlotSettingsArgs*)(a.settings + some * a.settings_stride);
  const Lane l = read_lane(a.lanes, lane);
  if (l.rows == 0) return;
  int* drawn = a.sampled.data + (kp_i64)l.slot * a.sampled.stride;
  if (forced >= a.vocabulary || (s.recorded_noise && !a.noise)) {
    if (forced >= a.vocabulary)
      report(a.lanes, kFaultId, forced);
    else
      report(a.lanes, kFaultNoise, l.slot);
    return;
  }
  const int id = draw(a, d, s, lane, l, *drawn, forced);
  kp_barrier();  // all have read what thread 0 is about to change
  if (kp_tid() != 0) return;
  int* status = a.status.data + (kp_i64)l.slot * a.status.stride;
  if (id < 0) {
    *status = 5;  // kNonFinite
    return;
  }
  a.codes[l.slot * a.codes_stride + a.group] = id;
  if (a.group != 0) return;
  a.seen[l.slot * a.seen_stride + id] = 1;
  *drawn += 1;
  if (id == a.stop_id) *status = 2;  // kStopToken
}

/// One lane a block; shared memory: the list, then the scores.
extern "C" __global__ void KP_BOUNDS(512) sample(SampleArgs a) {
  __shared__ SampleShared shared;
  KP_DYN_SHARED(kp_u64, list);
  kp_launch_dependents();
  prepare_draw(list, shared);
  kp_wait_previous();
  draw_lane(a, kp_bid(), list, shared);
}

/// A draw and the gather_sum behind it; see backend/gpu/fusion.h.
extern "C" __global__ void KP_BOUNDS(512) sample_feed(SampleFeedArgs a) {
  __shared__ SampleShared shared;
  KP_DYN_SHARED(kp_u64, list);
  kp_launch_dependents();
  prepare_draw(list, shared);
  kp_wait_previous();
  draw_lane(a.sample, kp_bid(), list, shared);
  kp_barrier();  // code and status are there
  const Lane l = read_lane(a.lanes, kp_bid());
  if (l.rows == 0) return;
  const int id = a.ids[l.slot * a.ids_stride];
  if (id >= a.table.rows) {
    if (kp_tid() == 0) report(a.lanes, kFaultId, id);
    return;
  }
  for (int i = kp_tid(); i < a.width; i += kSampleThreads)
    a.out[kp_bid() * a.out_stride + i] = id < 0 ? 0.0f : table_value(a.table, (kp_i64)id * a.width + i);
}
