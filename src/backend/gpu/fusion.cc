// Neighbouring ops as one launch.
#include "backend/gpu/fusion.h"

#include <optional>

namespace skald::backend::gpu {
namespace {

constexpr std::string_view kAttention = "attention_";

template <class Args>
Args args_of(const Launch& l) {
  Args args;
  std::memcpy(&args, l.args.data(), sizeof(Args));
  return args;
}

/// Lanes of two ops that are the same in every run; the ops' numbers do not matter.
bool same_lanes(LaneArgs a, const LaneArgs& b) {
  a.op = b.op;
  return a.slot == b.slot && a.count == b.count && a.start == b.start && a.gate == b.gate &&
         a.slot_stride == b.slot_stride && a.count_stride == b.count_stride &&
         a.start_stride == b.start_stride && a.gate_stride == b.gate_stride && a.lanes == b.lanes &&
         a.rows == b.rows && a.rate == b.rate && a.start_offset == b.start_offset && a.stride == b.stride;
}

bool same_cache(const CacheArgs& a, const CacheArgs& b) {
  return a.k == b.k && a.v == b.v && a.k_stride == b.k_stride && a.v_stride == b.v_stride &&
         a.capacity == b.capacity && a.ring == b.ring;
}

bool overlap(const float* a, int64_t a_size, const float* b, int64_t b_size) {
  return a < b + b_size && b < a + a_size;
}

/// One row a lane: then no row needs a key that another block makes.
std::optional<Launch> placed_attention(const Launch& place, const Launch& attend) {
  if (place.kernel != "place_heads" || !attend.kernel.starts_with(kAttention) ||
      attend.kernel.find("any") != std::string::npos)
    return std::nullopt;
  const auto p = args_of<PlaceHeadsArgs>(place);
  const auto a = args_of<AttentionArgs>(attend);
  if (p.lanes.rows != 1 || !same_lanes(p.lanes, a.lanes) || p.q != a.q || p.q_stride != a.q_stride ||
      !same_cache(p.cache, a.cache) || p.heads != a.heads || p.kv_heads != a.kv_heads ||
      p.head_dim != a.head_dim)
    return std::nullopt;
  // One block still reads the projections while another leaves its part: see ops_attention.cc.
  const int64_t projected = int64_t{p.lanes.lanes} * (p.heads + 2 * p.kv_heads) * p.head_dim;
  const int64_t wide = a.head_dim <= 64 ? 64 : a.head_dim <= 128 ? 128 : 256;
  const int64_t partial = a.partial ? int64_t{a.lanes.lanes} * a.heads * a.splits * (wide + 2) : 0;
  if (overlap(a.partial, partial, p.projected, projected)) return std::nullopt;
  const PlacedAttentionArgs args{a, p.projected, p.rope, p.q_norm, p.k_norm, p.rope_stride, p.epsilon};
  return Launch::make("attention_placed_" + attend.kernel.substr(kAttention.size()), attend.blocks,
                      static_cast<int>(attend.threads), args);
}

/// A draw whose code is the id of a plain row of one table, lane by lane.
std::optional<Launch> sample_feed(const Launch& sample, const Launch& gather) {
  if (sample.kernel != "sample" || gather.kernel != "gather_sum") return std::nullopt;
  const auto s = args_of<SampleArgs>(sample);
  const auto g = args_of<GatherSumArgs>(gather);
  if (!same_lanes(s.lanes, g.lanes) || g.tables != 1 || !g.ids_by_slot || g.add || g.stored ||
      g.ids != s.codes + s.group || g.ids_stride != s.codes_stride)
    return std::nullopt;
  // One lane is fed while another still draws.
  if (overlap(g.out, (g.lanes.lanes - 1) * g.out_stride + g.width, s.logits,
              (s.lanes.lanes - 1) * s.logits_stride + s.vocabulary))
    return std::nullopt;
  const SampleFeedArgs args{s, g.lanes, g.table[0], g.ids, g.out, g.ids_stride, g.out_stride, g.width};
  return Launch::make("sample_feed", sample.blocks, static_cast<int>(sample.threads), args,
                      sample.dynamic_shared);
}

}  // namespace

std::vector<Launch> unfused(std::span<const RecordedOp> ops) {
  std::vector<Launch> launches;
  for (const RecordedOp& op : ops) launches.insert(launches.end(), op.launches.begin(), op.launches.end());
  return launches;
}

std::vector<Launch> fuse(std::span<const RecordedOp> ops) {
  std::vector<Launch> launches;
  for (const Launch& next : unfused(ops)) {
    std::optional<Launch> both;
    if (!launches.empty()) {
      both = placed_attention(launches.back(), next);
      if (!both) both = sample_feed(launches.back(), next);
    }
    if (both)
      launches.back() = std::move(*both);
    else
      launches.push_back(next);
  }
  return launches;
}

}  // namespace skald::backend::gpu
