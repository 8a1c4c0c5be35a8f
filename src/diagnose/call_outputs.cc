// Outputs of every kind of call.
#include "diagnose/call_outputs.h"

#include <algorithm>

namespace skald::diagnose {

namespace bk = backend;
using Outputs = std::vector<CallOutput>;

namespace {

CallOutput lane_rows(std::string_view name, const bk::Buffer& view) { return {.name = name, .view = view}; }

CallOutput slot_rows(std::string_view name, const bk::Buffer& view, int32_t per_slot = 1) {
  return {.name = name, .view = view, .rows = CallOutput::of_slot, .per_slot = per_slot};
}

CallOutput lane_row(std::string_view name, const bk::Buffer& view) {
  return {.name = name, .view = view, .rows = CallOutput::per_lane};
}

CallOutput position_rows(std::string_view name, const bk::Buffer& view, int32_t capacity, bool ring) {
  return {.name = name, .view = view, .rows = CallOutput::at_positions, .per_slot = capacity, .ring = ring};
}

Outputs present(Outputs outputs) {
  std::erase_if(outputs, [](const CallOutput& o) { return !o.view; });
  return outputs;
}

}  // namespace

Outputs outputs_of(const bk::GatherSum& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::Linear& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::GatedPair& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::RopeAngles& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::QkvRope& a) {
  return {lane_rows("q", a.q), position_rows("cache.k", a.cache.k, a.cache.capacity, a.cache.ring),
          position_rows("cache.v", a.cache.v, a.cache.capacity, a.cache.ring)};
}
Outputs outputs_of(const bk::Attention& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::StoreRows& a) { return {position_rows("store", a.store, a.capacity, false)}; }
Outputs outputs_of(const bk::Copy& a) {
  return {a.rows == bk::Copy::each ? lane_rows("out", a.out) : lane_row("out", a.out)};
}
Outputs outputs_of(const bk::Sample& a) {
  // The draw first: where it differs, what follows from it differs as well.
  return present({lane_row("probs", a.probs), slot_rows("codes", a.slots.codes),
                  slot_rows("status", a.slots.status), slot_rows("sampled", a.slots.sampled),
                  slot_rows("seen", a.group == 0 ? a.slots.seen : bk::Buffer{})});
}
Outputs outputs_of(const bk::PublishFrame& a) {
  return {slot_rows("ring", a.slots.ring, a.slots.ring_frames), slot_rows("frames", a.slots.frames),
          slot_rows("status", a.slots.status)};
}
Outputs outputs_of(const bk::Advance& a) { return {slot_rows("counter", a.counter)}; }
Outputs outputs_of(const bk::Conv& a) {
  return present({lane_rows("out", a.out), slot_rows("state", a.state, (a.kernel - 1) * a.dilation)});
}
Outputs outputs_of(const bk::ConvTransposed& a) {
  CallOutput out = lane_rows("out", a.out);
  out.up = a.stride;
  return present({out, slot_rows("state", a.state, a.kernel / a.stride - 1)});
}
Outputs outputs_of(const bk::Depthwise& a) {
  return present({lane_rows("out", a.out), slot_rows("state", a.state, a.kernel - 1)});
}
Outputs outputs_of(const bk::LogMel& a) {
  CallOutput out = lane_rows("out", a.out);
  out.down = a.hop;
  return {out};
}
Outputs outputs_of(const bk::PaddedConv& a) {
  CallOutput out = lane_rows("out", a.out);
  out.down = a.stride, out.round_up = true;
  return present({out, slot_rows("state", a.state, (a.kernel - 1) * a.dilation + 1 - a.stride)});
}
Outputs outputs_of(const bk::Statistics& a) { return {lane_row("out", a.out)}; }
Outputs outputs_of(const bk::ScaleRows& a) { return {lane_rows("out", a.out)}; }
Outputs outputs_of(const bk::NearestCode& a) {
  return present({lane_rows("codes", a.codes), lane_rows("remainder", a.remainder)});
}

std::vector<RowSpan> written_rows(const CallOutput& o, const bk::Lanes& lanes,
                                  const std::vector<RunningLane>& running) {
  std::vector<RowSpan> spans;
  for (const RunningLane& lane : running) {
    switch (o.rows) {
      case CallOutput::of_lane: {
        const int32_t rest = o.round_up ? o.down - 1 : 0;
        spans.push_back({.first = lane.lane * (lanes.rows * o.up / o.down),
                         .count = (lane.rows * o.up + rest) / o.down,
                         .slot = lane.slot,
                         .position = lanes.rate == 1 && o.up == 1 && o.down == 1 ? lane.position : -1});
        break;
      }
      case CallOutput::per_lane:
        spans.push_back(
            {.first = lane.lane, .count = 1, .slot = lane.slot, .position = lane.position + lane.rows - 1});
        break;
      case CallOutput::of_slot:
        spans.push_back({.first = lane.slot * o.per_slot, .count = o.per_slot, .slot = lane.slot});
        break;
      case CallOutput::at_positions: {
        const int32_t base = lane.slot * o.per_slot;
        // Of a run longer than the ring only the last rows stay.
        const int32_t lost = o.ring ? std::max(0, lane.rows - o.per_slot) : 0;
        int64_t position = lane.position + lost;
        for (int32_t left = lane.rows - lost; left > 0;) {
          const auto at = static_cast<int32_t>(o.ring ? position % o.per_slot : position);
          const int32_t count = o.ring ? std::min(left, o.per_slot - at) : left;
          spans.push_back({.first = base + at, .count = count, .slot = lane.slot, .position = position});
          position += count, left -= count;
        }
        break;
      }
    }
  }
  return spans;
}

}  // namespace skald::diagnose
