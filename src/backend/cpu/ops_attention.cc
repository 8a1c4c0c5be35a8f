// rope_angles, qkv_rope and attention.
#include <fmt/format.h>

#include <cmath>

#include "backend/cpu/inputs.h"
#include "backend/cpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

class RopeAnglesOp final : public BoundOp {
 public:
  RopeAnglesOp(Binder& b, const RopeAngles& a) : lanes_(b, a.lanes) {
    out_ = b.rows(a.out, lanes_.total(), a.head_dim, "out");
    // As the reference: the exponent, the power and the reciprocal are each rounded to float32.
    for (int i = 0; i < a.head_dim / 2; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(a.head_dim);
      const auto power =
          static_cast<float>(std::pow(static_cast<double>(a.theta), static_cast<double>(exponent)));
      inverse_frequency_.push_back(1.0f / power);
    }
  }

  void run() override {
    const size_t half = inverse_frequency_.size();
    for (const ActiveLane& lane : lanes_.active())
      for (int32_t r = 0; r < lane.rows; ++r) {
        float* to = out_[lane.row + r];
        const auto position = static_cast<float>(lane.position + r);
        for (size_t i = 0; i < half; ++i) {
          const float angle = position * inverse_frequency_[i];
          to[i] = std::cos(angle);
          to[half + i] = std::sin(angle);
        }
      }
  }

 private:
  LaneSet lanes_;
  std::vector<float> inverse_frequency_;
  Rows<float> out_;
};

/// A cache bound to one op.
struct BoundCache {
  Rows<float> k, v;
  int64_t capacity = 0;
  int32_t slots = 0;
  bool ring = false;

  BoundCache(const Binder& b, const KvCache& cache, int width) : capacity(cache.capacity), ring(cache.ring) {
    k = b.rows(cache.k, cache.capacity, width, "cache.k");
    v = b.rows(cache.v, cache.k.rows, width, "cache.v");
    slots = cache.k.rows / cache.capacity;
  }

  /// Throws when a lane's slot or positions are outside the cache: writing there would destroy another
  /// slot's.
  void check(const ActiveLane& lane) const {
    if (lane.slot >= slots || lane.position < 0 || (!ring && lane.position + lane.rows > capacity))
      throw Error(ErrorCode::internal,
                  fmt::format("slot {} at position {} with {} rows is outside a cache of {} "
                              "slots x {} positions",
                              lane.slot, lane.position, lane.rows, slots, capacity));
  }
};

class QkvRopeOp final : public BoundOp {
 public:
  QkvRopeOp(Binder& b, const QkvRope& a)
      : device_(b.device()),
        lanes_(b, a.lanes),
        x_(b, a.x, a.norm, lanes_, {a.wq, a.wk, a.wv}),
        heads_(a.heads),
        kv_heads_(a.kv_heads),
        head_dim_(a.head_dim),
        cache_(b, a.cache, a.kv_heads * a.head_dim) {
    for (const Weight w : {a.wq, a.wk, a.wv}) matrices_.emplace_back(b.matrix(w));
    q_norm_ = b.vector(a.q_norm);
    k_norm_ = b.vector(a.k_norm);
    epsilon_ = a.norm.epsilon;
    rope_ = b.rows(a.rope, lanes_.total(), a.head_dim, "rope");
    q_ = b.rows(a.q, lanes_.total(), a.heads * a.head_dim, "q");
    sums_ = b.scratch<float>(kTileSums * device_.pool().threads());
    projected_ = b.scratch<float>(int64_t{lanes_.total()} * projected_width());
    cache_rows_ = b.scratch<int64_t>(lanes_.total());
  }

  void run() override {
    const auto lanes = lanes_.active();
    for (const ActiveLane& lane : lanes) cache_.check(lane);
    const int n = x_.prepare(lanes);
    int64_t work = 0;
    int groups = 0;
    for (const BoundMatrix& m : matrices_) work += n * m.work(), groups += m.groups();
    for_tiles(device_.pool(), n, groups, work, [&](int first, int m, GroupRange range, int thread) {
      for (int group = range.first; group < range.end; ++group) multiply(first, m, group, thread);
    });
    aim(lanes);
    for_rows(device_.pool(), n, projected_width(), [&](int i, int) { place(i); });
  }

 private:
  int projected_width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }

  /// Sums of one column group of q, k or v into scratch rows [q | k | v].
  void multiply(int first, int m, int group, int thread) {
    int column = 0;
    const BoundMatrix* matrix = matrices_.data();
    while (group >= matrix->groups()) group -= matrix->groups(), column += matrix->matrix->outputs, ++matrix;
    float* sums = sums_.get() + thread * kTileSums;
    matrix->product(device_.kernels(), x_.rows() + first, m, group, sums);
    const int stride = matrix->panels(group) * kPanel, columns = matrix->columns(group);
    float* to = projected_.get() + int64_t{first} * projected_width() + column + matrix->first_column(group);
    for (int i = 0; i < m; ++i) std::copy_n(sums + i * stride, columns, to + int64_t{i} * projected_width());
  }

  /// Where every valid row goes in the cache.
  void aim(std::span<const ActiveLane> lanes) {
    int64_t* to = cache_rows_.get();
    for (const ActiveLane& lane : lanes)
      for (int32_t r = 0; r < lane.rows; ++r)
        *to++ = lane.slot * cache_.capacity + (lane.position + r) % cache_.capacity;
  }

  void place(int i) {
    const Kernels& kernels = device_.kernels();
    const int32_t row = x_.index(i);
    const int64_t cache_row = cache_rows_.get()[i];
    const float* from = projected_.get() + int64_t{i} * projected_width();
    HeadShape shape{.head_dim = head_dim_, .norm = q_norm_, .epsilon = epsilon_, .rope = rope_[row]};
    for (int h = 0; h < heads_; ++h, from += head_dim_) kernels.rotate(from, shape, q_[row] + h * head_dim_);
    shape.norm = k_norm_;
    for (int h = 0; h < kv_heads_; ++h, from += head_dim_)
      kernels.rotate(from, shape, cache_.k[cache_row] + h * head_dim_);
    std::copy_n(from, kv_heads_ * head_dim_, cache_.v[cache_row]);
  }

  CpuDevice& device_;
  LaneSet lanes_;
  InputRows x_;
  int heads_, kv_heads_, head_dim_;
  BoundCache cache_;
  std::vector<BoundMatrix> matrices_;  // q, k, v
  const float *q_norm_ = nullptr, *k_norm_ = nullptr;
  float epsilon_ = 0;
  Rows<float> rope_, q_;
  Scratch<float> sums_, projected_;
  Scratch<int64_t> cache_rows_;
};

class AttentionOp final : public BoundOp {
 public:
  AttentionOp(Binder& b, const Attention& a)
      : device_(b.device()), lanes_(b, a.lanes), call_(a), cache_(b, a.cache, a.kv_heads * a.head_dim) {
    q_ = b.rows(a.q, lanes_.total(), a.heads * a.head_dim, "q");
    out_ = b.rows(a.out, lanes_.total(), a.heads * a.head_dim, "out");
    const int64_t keys = a.window > 0 ? std::min<int64_t>(a.window, a.cache.capacity) : a.cache.capacity;
    thread_scores_ = attend_scores(keys) * (a.heads / a.kv_heads);
    scores_ = b.scratch<float>(thread_scores_ * device_.pool().threads());
    queries_ = b.scratch<Query>(lanes_.total());
  }

  void run() override {
    Query* queries = queries_.get();
    int n = 0;
    int64_t keys = 0;
    for (const ActiveLane& lane : lanes_.active()) {
      cache_.check(lane);
      for (int32_t r = 0; r < lane.rows; ++r, ++n) {
        const int64_t last = lane.position + r;
        queries[n] = {.row = lane.row + r,
                      .slot = lane.slot,
                      .first = call_.window > 0 ? std::max<int64_t>(0, last - call_.window + 1) : 0,
                      .last = last};
        keys = std::max(keys, last - queries[n].first + 1);
      }
    }
    // A task is one query row and one kv head, or several where there are few keys.
    const int64_t group = call_.heads / call_.kv_heads;
    for_rows(
        device_.pool(), int64_t{n} * call_.kv_heads, 2 * keys * group * call_.head_dim / 4,
        [&](int task, int thread) { attend(queries[task / call_.kv_heads], task % call_.kv_heads, thread); });
  }

 private:
  struct Query {
    int32_t row, slot;
    int64_t first, last;
  };

  void attend(const Query& query, int kv_head, int thread) {
    const int group = call_.heads / call_.kv_heads;
    const int64_t column = int64_t{kv_head} * call_.head_dim, base = query.slot * cache_.capacity;
    device_.kernels().attend({.q = q_[query.row] + group * column,
                              .k = cache_.k[base] + column,
                              .v = cache_.v[base] + column,
                              .k_stride = cache_.k.stride,
                              .v_stride = cache_.v.stride,
                              .group = group,
                              .head_dim = call_.head_dim,
                              .first = query.first,
                              .last = query.last,
                              .capacity = cache_.capacity,
                              .scale = call_.scale,
                              .scores = scores_.get() + thread * thread_scores_,
                              .out = out_[query.row] + group * column});
  }

  CpuDevice& device_;
  LaneSet lanes_;
  Attention call_;
  BoundCache cache_;
  Rows<float> q_, out_;
  int64_t thread_scores_ = 0;
  Scratch<float> scores_;
  Scratch<Query> queries_;
};

}  // namespace

void Recorder::rope_angles(const RopeAngles& a) { add<RopeAnglesOp>("rope_angles", a, {a.out}); }
void Recorder::qkv_rope(const QkvRope& a) { add<QkvRopeOp>("qkv_rope", a, {a.q, a.cache.k, a.cache.v}); }
void Recorder::attention(const Attention& a) { add<AttentionOp>("attention", a, {a.out}); }

}  // namespace skald::backend::cpu
