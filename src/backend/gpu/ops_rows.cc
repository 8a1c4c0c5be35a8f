// gather_sum, store_rows, copy, advance, publish_frame and sample.
#include <algorithm>
#include <cstddef>

#include "backend/gpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

static_assert(sizeof(SlotSettingsArgs) == sizeof(SlotSettings) &&
              offsetof(SlotSettingsArgs, predictor) == offsetof(SlotSettings, predictor) &&
              offsetof(SlotSettingsArgs, seed_low) == offsetof(SlotSettings, seed_low) &&
              offsetof(SlotSettingsArgs, want_probs) == offsetof(SlotSettings, want_probs) &&
              offsetof(SamplerSettingsArgs, top_k) == offsetof(SamplerSettings, top_k) &&
              offsetof(SamplerSettingsArgs, greedy) == offsetof(SamplerSettings, greedy));

std::vector<Launch> gather_launches(const Binder& b, const GatherSum& a) {
  const int rows = a.lanes.total(), width = a.out.width;
  if (a.tables.size() > kMostTables) throw Error(ErrorCode::unsupported, b.where() + ": more than 32 tables");
  GatherSumArgs args{};
  int64_t slots = kAnySlots;
  for (const Weight table : a.tables) {
    const DeviceWeight& w = b.weight(table);
    args.table[args.tables++] = {reinterpret_cast<const void*>(w.address), static_cast<int>(w.rows), w.kind};
  }
  if (args.tables > 0) {
    const Rows<int32_t> ids = b.rows<int32_t>(a.ids, a.ids_by_slot ? 1 : rows, args.tables, "ids");
    args.ids = ids.data, args.ids_stride = ids.stride, args.ids_by_slot = a.ids_by_slot;
    if (a.ids_by_slot) slots = a.ids.rows;
  }
  const Rows<float> add = b.optional_rows(a.add, rows, width, "add"), out = b.rows(a.out, rows, width, "out");
  args.add = add.data, args.add_stride = add.stride;
  args.out = out.data, args.out_stride = out.stride, args.width = width;
  if (a.stored) {
    const Elements count = b.elements(a.stored_count, 1, "stored_count"),
                   step = b.elements(a.stored_step, count.count, "stored_step");
    const Rows<float> stored = b.rows(a.stored, count.count, width, "stored");
    args.stored = stored.data, args.stored_stride = stored.stride;
    args.stored_capacity = a.stored.rows / count.count;
    args.stored_count = count.data, args.count_stride = static_cast<int>(count.stride);
    args.stored_step = step.data, args.step_stride = static_cast<int>(step.stride);
    args.pad = b.rows(a.pad, 1, width, "pad").data;
    slots = std::min<int64_t>(slots, count.count);
  }
  args.lanes = b.lanes(a.lanes, slots);
  return {Launch::make("gather_sum", int64_t{rows} * ((width + 255) / 256), 256, args)};
}

std::vector<Launch> store_launches(const Binder& b, const StoreRows& a) {
  const Rows<float> x = b.rows(a.x, a.lanes.total(), a.x.width, "x"),
                    store = b.rows(a.store, a.capacity, a.x.width, "store");
  const StoreRowsArgs args{b.lanes(a.lanes, a.store.rows / a.capacity),
                           x.data,
                           store.data,
                           x.stride,
                           store.stride,
                           a.capacity,
                           a.x.width};
  return {Launch::make("store_rows", a.lanes.total(), 256, args)};
}

std::vector<Launch> copy_launches(const Binder& b, const Copy& a) {
  const int rows = a.rows == Copy::each ? a.lanes.total() : a.lanes.lanes;
  const Rows<kp_u32> x = b.rows<kp_u32>(a.x, a.rows == Copy::of_slot ? 1 : a.lanes.total(), a.x.width, "x"),
                     out = b.rows<kp_u32>(a.out, rows, a.x.width, "out");
  const CopyArgs args{b.lanes(a.lanes, a.rows == Copy::of_slot ? a.x.rows : kAnySlots),
                      x.data,
                      out.data,
                      x.stride,
                      out.stride,
                      static_cast<int>(a.rows),
                      a.x.width};
  return {Launch::make("copy_rows", rows, 256, args)};
}

std::vector<Launch> advance_launches(const Binder& b, const Advance& a) {
  const Elements counter = b.elements(a.counter, 1, "counter");
  const AdvanceArgs args{b.lanes(a.lanes, counter.count), counter.data, static_cast<int>(counter.stride)};
  return {Launch::make("advance", (a.lanes.lanes + 63) / 64, 64, args)};
}

std::vector<Launch> publish_launches(const Binder& b, const PublishFrame& a) {
  const SlotArrays& s = a.slots;
  const int slots = s.settings.rows;
  const Rows<kp_u8> settings = b.rows<kp_u8>(s.settings, slots, sizeof(SlotSettings), "settings");
  const Rows<int> codes = b.rows<int>(s.codes, slots, s.groups, "codes"),
                  ring = b.rows<int>(s.ring, int64_t{slots} * s.ring_frames, s.groups, "ring");
  PublishArgs args{};
  args.lanes = b.lanes(a.lanes, slots);
  args.settings = settings.data, args.settings_stride = settings.stride;
  args.codes = codes.data, args.codes_stride = codes.stride;
  args.ring = ring.data, args.ring_stride = ring.stride;
  args.status = b.counter(s.status, slots, "status");
  args.position = b.counter(s.position, slots, "position");
  args.frames = b.counter(s.frames, slots, "frames");
  if (s.sampled) args.sampled = b.counter(s.sampled, slots, "sampled");
  if (s.step) args.step = b.counter(s.step, slots, "step");
  args.host = b.target().host_ring();
  b.require(!args.host.entries || args.host.stride >= kRingCodes + s.groups, "the host's ring is too narrow");
  args.capacity = s.cache_capacity, args.ring_frames = s.ring_frames, args.groups = s.groups;
  return {Launch::make("publish_frame", a.lanes.lanes, 64, args)};
}

/// Shared memory of a draw: a list of a power of two of numbers, and the scores.
size_t draw_shared(const Binder& b, int vocabulary) {
  size_t list = 1024;  // at least room for the bins of top-k
  while (list < static_cast<size_t>(vocabulary)) list *= 2;
  const size_t bytes = list * 8 + static_cast<size_t>(vocabulary) * 4;
  constexpr size_t kMost = 46 * 1024;  // of 48 KB; the rest is the kernel's own
  if (bytes > kMost) throw Error(ErrorCode::unsupported, b.where() + ": more than 3,584 logits");
  return bytes;
}

std::vector<Launch> sample_launches(const Binder& b, const Sample& a) {
  const SlotArrays& s = a.slots;
  const int slots = s.settings.rows, vocabulary = a.logits.width;
  SampleArgs args{};
  args.lanes = b.lanes(a.lanes, slots);
  const auto set = [](const auto& bound, auto& data, kp_i64& stride) {
    data = bound.data, stride = bound.stride;
  };
  set(b.rows(a.logits, a.lanes.total(), vocabulary, "logits"), args.logits, args.logits_stride);
  set(b.optional_rows(a.probs, a.lanes.total(), vocabulary, "probs"), args.probs, args.probs_stride);
  set(b.rows<kp_u8>(s.settings, slots, sizeof(SlotSettings), "settings"), args.settings,
      args.settings_stride);
  set(b.rows<int>(s.codes, slots, s.groups, "codes"), args.codes, args.codes_stride);
  set(b.rows<int>(s.forced, slots, s.groups, "forced"), args.forced, args.forced_stride);
  if (a.group == 0) {
    set(b.rows<kp_u8>(s.seen, slots, vocabulary, "seen"), args.seen, args.seen_stride);
    set(b.optional_rows(s.noise, slots, vocabulary, "noise"), args.noise, args.noise_stride);
  } else {
    set(b.optional_rows(s.predictor_noise, slots, int64_t{s.groups - 1} * a.codes, "predictor_noise"),
        args.noise, args.noise_stride);
    if (args.noise) args.noise += int64_t{a.group - 1} * a.codes;
  }
  args.status = b.counter(s.status, slots, "status");
  args.sampled = b.counter(s.sampled, slots, "sampled");
  args.group = a.group, args.vocabulary = vocabulary, args.codes_count = a.codes, args.stop_id = a.stop_id;
  return {Launch::make("sample", a.lanes.lanes, 512, args, draw_shared(b, vocabulary))};
}

}  // namespace

void Recorder::gather_sum(const GatherSum& a) {
  add("gather_sum", a, {a.out}, [&](const Binder& b) { return gather_launches(b, a); });
}
void Recorder::store_rows(const StoreRows& a) {
  add("store_rows", a, {a.store}, [&](const Binder& b) { return store_launches(b, a); });
}
void Recorder::copy(const Copy& a) {
  add("copy", a, {a.out}, [&](const Binder& b) { return copy_launches(b, a); });
}
void Recorder::advance(const Advance& a) {
  add("advance", a, {a.counter}, [&](const Binder& b) { return advance_launches(b, a); });
}
void Recorder::publish_frame(const PublishFrame& a) {
  add("publish_frame", a, {a.slots.ring, a.slots.frames, a.slots.status},
      [&](const Binder& b) { return publish_launches(b, a); });
}
void Recorder::sample(const Sample& a) {
  add("sample", a,
      {a.probs, a.slots.codes, a.slots.status, a.slots.sampled, a.group == 0 ? a.slots.seen : Buffer{}},
      [&](const Binder& b) { return sample_launches(b, a); });
}

}  // namespace skald::backend::gpu
