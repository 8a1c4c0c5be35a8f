// rope_angles, qkv_rope and attention.
#include <algorithm>
#include <cmath>

#include "backend/gpu/products.h"
#include "backend/gpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

constexpr int kMostHeadDim = 256;

void require_head_dim(const Binder& b, int head_dim) {
  if (head_dim > kMostHeadDim)
    throw Error(ErrorCode::unsupported, b.where() + ": heads of more than 256 elements");
}

std::vector<Launch> angle_launches(const Binder& b, const RopeAngles& a) {
  require_head_dim(b, a.head_dim);
  RopeAnglesArgs args{};
  args.lanes = b.lanes(a.lanes, kAnySlots);
  const Rows<float> out = b.rows(a.out, a.lanes.total(), a.head_dim, "out");
  args.out = out.data, args.out_stride = out.stride, args.half = a.head_dim / 2;
  // As the reference: the exponent, the power and the reciprocal are each rounded to float32.
  for (int i = 0; i < args.half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(a.head_dim);
    args.inverse_frequency[i] =
        1.0f / static_cast<float>(std::pow(static_cast<double>(a.theta), static_cast<double>(exponent)));
  }
  return {Launch::make("rope_angles", a.lanes.total(), 128, args)};
}

/// The projections go to scratch rows [q | k | v], from there to where they belong.
std::vector<Launch> qkv_launches(const Binder& b, const QkvRope& a) {
  const int rows = a.lanes.total(), heads = a.heads + 2 * a.kv_heads, width = heads * a.head_dim;
  const int64_t slots = a.cache.k.rows / a.cache.capacity;
  std::vector<Launch> launches;
  ProductArgs args{};
  const ElementKind kind = b.weight(a.wq).kind;
  if (b.weight(a.wk).kind != kind || b.weight(a.wv).kind != kind)
    throw Error(ErrorCode::unsupported, b.where() + ": wq, wk and wv are of different types");
  const bool first = normalises_first(a.norm, a.lanes, false),
             matrix = on_matrix_units(b, a.norm, a.lanes, kind);
  const int64_t floats = (int64_t{rows} * width + 63) / 64 * 64;
  float* const projected = b.scratch<float>(floats + (matrix  ? matrix_scratch(a.x, a.lanes) / 4
                                                      : first ? normed_floats(a.x, a.lanes)
                                                              : 0));
  const std::vector<MatrixArgs> matrices{b.matrix(a.wq), b.matrix(a.wk), b.matrix(a.wv)};
  args.to.out = projected, args.to.out_stride = width;
  if (matrix) {
    args.lanes = b.lanes(a.lanes, slots);
    matrix_launches(b, a.x, a.norm, a.lanes, slots, matrices, args.to,
                    reinterpret_cast<std::byte*>(projected + floats), launches);
  } else {
    set_input(b, a.x, a.norm, a.lanes, slots, kind, first ? projected + floats : nullptr, args, launches);
    launches.push_back(product_launch(b, args, matrices, kind));
  }
  const Rows<float> rope = b.rows(a.rope, rows, a.head_dim, "rope"),
                    q = b.rows(a.q, rows, a.heads * a.head_dim, "q");
  const PlaceHeadsArgs place{.lanes = args.lanes,
                             .projected = projected,
                             .rope = rope.data,
                             .q_norm = b.vector(a.q_norm),
                             .k_norm = b.vector(a.k_norm),
                             .q = q.data,
                             .rope_stride = rope.stride,
                             .q_stride = q.stride,
                             .cache = b.cache(a.cache, a.kv_heads * a.head_dim),
                             .epsilon = a.norm.epsilon,
                             .heads = a.heads,
                             .kv_heads = a.kv_heads,
                             .head_dim = a.head_dim};
  launches.push_back(Launch::make("place_heads", (int64_t{rows} * heads + 7) / 8, 256, place));
  return launches;
}

/// Whether rows of heads can be read 16 bytes at a time.
bool aligned(const void* data, int64_t stride, int head_dim) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0 && head_dim % 4 == 0;
}

std::vector<Launch> attention_launches(const Binder& b, const Attention& a) {
  require_head_dim(b, a.head_dim);
  const int rows = a.lanes.total(), group = a.heads / a.kv_heads;
  const Rows<float> q = b.rows(a.q, rows, a.heads * a.head_dim, "q"),
                    out = b.rows(a.out, rows, a.heads * a.head_dim, "out");
  AttentionArgs args{};
  args.lanes = b.lanes(a.lanes, a.cache.k.rows / a.cache.capacity);
  args.cache = b.cache(a.cache, a.kv_heads * a.head_dim);
  args.q = q.data, args.q_stride = q.stride, args.out = out.data, args.out_stride = out.stride;
  args.scale = a.scale, args.heads = a.heads, args.kv_heads = a.kv_heads, args.head_dim = a.head_dim;
  args.window = a.window;
  const bool whole = aligned(q.data, q.stride, a.head_dim) &&
                     aligned(args.cache.k, args.cache.k_stride, a.head_dim) &&
                     aligned(args.cache.v, args.cache.v_stride, a.head_dim);
  // The cut depends on the keys alone, so that a row's result does not depend on how many rows there are.
  constexpr int kMostSplits = 16, kKeysPerSplit = 128;
  const int keys = a.window > 0 ? a.window : a.cache.capacity;
  args.splits = std::clamp((keys + kKeysPerSplit - 1) / kKeysPerSplit, 1, kMostSplits);
  // What cannot be read 16 bytes at a time is no model's; it has one kernel for all.
  const int wide = !whole ? 256 : a.head_dim <= 64 ? 64 : a.head_dim <= 128 ? 128 : 256;
  args.heads_per = group % 2 == 0 && wide < 256 ? 2 : 1;
  const int groups = a.heads / args.heads_per;
  args.groups = groups, args.per_kv = group / args.heads_per;
  if (args.splits > 1) {
    // Behind the projections that qkv_rope leaves in scratch: fused with it, one block still reads them while
    // another has got here.
    const int64_t projected = (int64_t{rows} * (a.heads + 2 * a.kv_heads) * a.head_dim + 63) / 64 * 64;
    args.partial =
        b.scratch<float>(projected + int64_t{rows} * a.heads * args.splits * (wide + 2)) + projected;
    args.arrived = b.zeroed<kp_u32>(int64_t{rows} * groups);
  }
  return {Launch::make(
      (whole ? "attention_" : "attention_any_") + std::to_string(wide) + "_" + std::to_string(args.heads_per),
      int64_t{rows} * groups * args.splits, 256, args)};
}

}  // namespace

void Recorder::rope_angles(const RopeAngles& a) {
  add("rope_angles", a, {a.out}, [&](const Binder& b) { return angle_launches(b, a); });
}
void Recorder::qkv_rope(const QkvRope& a) {
  add("qkv_rope", a, {a.q, a.cache.k, a.cache.v}, [&](const Binder& b) { return qkv_launches(b, a); });
}
void Recorder::attention(const Attention& a) {
  add("attention", a, {a.out}, [&](const Binder& b) { return attention_launches(b, a); });
}

}  // namespace skald::backend::gpu
