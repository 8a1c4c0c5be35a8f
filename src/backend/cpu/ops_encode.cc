// padded_conv and nearest_code: what the codec encoder needs beyond the decoder's operations.
#include <fmt/format.h>

#include <cmath>

#include "backend/cpu/recorder.h"
#include "backend/cpu/tap_product.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

const PackedMatrix& conv_weight(const Binder& b, const PaddedConv& a) {
  const PackedMatrix& w = b.weight(a.weight, WeightRole::convolution, "weight").packed;
  b.require(a.kernel == w.taps && a.dilation > 0 && a.stride > 0,
            "kernel differs from the weight's, or dilation or stride is not positive");
  b.require(!is_pairs(w.layout), "padded convolutions are exact: their weights have to be loaded so");
  return w;
}

std::vector<Segment> conv_segments(const PaddedConv& a, const PackedMatrix& w) {
  return plan_segments(w, a.kernel, int64_t{a.dilation} * w.inputs, w.tap_elements());
}

/// The rows under one batch of outputs are staged with their padding, one lane at a time.
class PaddedConvOp final : public BoundOp {
 public:
  PaddedConvOp(Binder& b, const PaddedConv& a)
      : device_(b.device()),
        lanes_(b, a.lanes),
        call_(a),
        weight_(conv_weight(b, a)),
        product_(b, weight_, conv_segments(a, weight_)),
        inputs_(a.x.width),
        span_(int64_t{a.kernel - 1} * a.dilation + 1) {
    b.require(weight_.inputs == inputs_, "'x' is not as wide as the weight");
    b.require(a.before == Activation::none || a.before == Activation::elu, "'before' should be none or elu");
    b.require(lanes_.rows() % a.stride == 0, "rows should be a multiple of stride");
    const int64_t outputs = int64_t{lanes_.lanes()} * out_rows();
    x_ = b.rows(a.x, lanes_.total(), inputs_, "x");
    add_ = b.optional_rows(a.add, lanes_.total(), inputs_, "add");
    target_ = {.out = b.rows(a.out, outputs, weight_.outputs, "out"),
               .residual = b.optional_rows(a.residual, outputs, weight_.outputs, "residual"),
               .bias = b.vector(a.bias, weight_.outputs, "bias"),
               .activation = a.after};
    lane_bias_ = b.optional_rows(a.lane_bias, lanes_.lanes(), weight_.outputs, "lane_bias");
    b.require(!lane_bias_ || !target_.bias, "lane_bias takes the place of bias");
    b.require_disjoint(a.x, a.out, "'out' overlaps 'x'");
    b.require_disjoint(a.add, a.out, "'out' overlaps 'add'");
    bind_padding(b);
    const int64_t most = std::max<int64_t>(2 * kRowChunk, kBatchFloats / (int64_t{inputs_} * a.stride));
    batch_ = std::min<int64_t>(out_rows(), most);
    staged_ = b.scratch<float>(((batch_ - 1) * a.stride + span_) * inputs_);
    pointers_ = b.scratch<const float*>(batch_);
    index_ = b.scratch<int32_t>(batch_);
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      check(lane);
      TapProduct::Target to = target_;
      if (lane_bias_) to.bias = lane_bias_[lane.lane];
      const int64_t outputs = (int64_t{lane.rows} + call_.stride - 1) / call_.stride;
      for (int64_t done = 0; done < outputs;) {
        const auto n = static_cast<int>(std::min(outputs - done, batch_));
        stage(lane, done, n);
        product_.run(pointers_.get(), index_.get(), n, to);
        done += n;
      }
      renew_state(lane);
    }
  }

 private:
  int out_rows() const { return lanes_.rows() / call_.stride; }
  bool reflects() const { return call_.padding == PaddedConv::reflect; }

  void bind_padding(Binder& b) {
    if (reflects()) {
      b.require(call_.stride == 1 && !call_.state, "mirrored padding needs stride 1 and no state");
      left_ = (span_ - 1) / 2;
      return;
    }
    left_ = span_ - call_.stride;
    b.require(left_ >= 0, "the stride is longer than the kernel");
    b.require(call_.padding == PaddedConv::zero || call_.lanes.start, "'replicate' needs lanes.start");
    if (left_ == 0) return;
    b.require(call_.state && call_.state.rows % left_ == 0, "state rows should be slots * (span - stride)");
    state_ = b.rows(call_.state, left_, inputs_, "state");
    slots_ = static_cast<int32_t>(call_.state.rows / left_);
    b.require_disjoint(call_.state, call_.x, "'state' overlaps 'x'");
    b.require_disjoint(call_.state, call_.out, "'state' overlaps 'out'");
  }

  void check(const ActiveLane& lane) const {
    if (state_ && lane.slot >= slots_)
      throw Error(ErrorCode::internal, fmt::format("slot {} has no state", lane.slot));
    if (reflects() && lane.rows <= span_ - 1 - left_)
      throw Error(ErrorCode::internal,
                  fmt::format("{} rows are too few to be mirrored by a kernel of {}", lane.rows, span_));
  }

  /// Row r of the lane after `before`, padding included.
  void load(const ActiveLane& lane, int64_t r, float* to) const {
    const int64_t n = lane.rows;
    if (reflects()) {
      r = r < 0 ? -r : r >= n ? 2 * (n - 1) - r : r;
    } else if (r < 0 && call_.padding == PaddedConv::replicate && lane.position == 0) {
      r = 0;
    } else if (r < 0) {
      std::copy_n(state_[lane.slot * left_ + left_ + r], inputs_, to);
      return;
    } else if (r >= n && call_.padding == PaddedConv::zero) {
      std::fill_n(to, inputs_, 0.0f);
      return;
    }
    const int64_t row = lane.row + std::min(r, n - 1);
    std::copy_n(x_[row], inputs_, to);
    if (add_) device_.kernels().add(add_[row], inputs_, to);
    if (call_.before == Activation::elu) device_.kernels().elu(to, inputs_, to);
  }

  /// Output rows [first, first + n) of the lane become rows 0.. of the product.
  void stage(const ActiveLane& lane, int64_t first, int n) const {
    const int64_t start = first * call_.stride - left_, rows = int64_t{n - 1} * call_.stride + span_;
    float* const staged = staged_.get();
    for_rows(device_.pool(), rows, 4 * int64_t{inputs_},
             [&](int r, int) { load(lane, start + r, staged + int64_t{r} * inputs_); });
    for (int i = 0; i < n; ++i) {
      pointers_.get()[i] = staged + int64_t{i} * call_.stride * inputs_;
      index_.get()[i] = static_cast<int32_t>(int64_t{lane.lane} * out_rows() + first + i);
    }
  }

  /// Ascending order: a state row is overwritten only after it moved up.
  void renew_state(const ActiveLane& lane) const {
    if (!state_) return;
    for (int64_t h = 0; h < left_; ++h) {
      const int64_t r = lane.rows - left_ + h;
      load(lane, r, state_[lane.slot * left_ + h]);
    }
  }

  CpuDevice& device_;
  LaneSet lanes_;
  PaddedConv call_;
  const PackedMatrix& weight_;
  TapProduct product_;
  int inputs_;
  int64_t span_, left_ = 0, batch_ = 0;
  int32_t slots_ = 0;
  Rows<float> x_, add_, state_, lane_bias_;
  TapProduct::Target target_;
  Scratch<float> staged_;
  Scratch<const float*> pointers_;
  Scratch<int32_t> index_;
};

/// All sums in float32; then, row by row, the entries whose sums are within rounding of the largest are
/// compared in double precision.
class NearestCodeOp final : public BoundOp {
 public:
  NearestCodeOp(Binder& b, const NearestCode& a)
      : device_(b.device()),
        lanes_(b, a.lanes),
        x_(b, a.x, {}, lanes_),
        entries_(b.weight(a.entries, WeightRole::table, "entries")),
        codes_(static_cast<int>(entries_.rows)),
        matrix_(b.matrix(a.matrix, codes_, a.x.width, "matrix")) {
    b.require(!is_pairs(matrix_.matrix->layout), "'matrix' has to be loaded as exact");
    b.require(entries_.width == a.x.width && entries_.table_type == Dtype::f32,
              "entries should be float32 and as wide as 'x'");
    half_square_ = b.vector(a.half_square, codes_, "half_square");
    b.require(half_square_ != nullptr, "half_square is missing");
    out_ = b.rows<int32_t>(a.codes, lanes_.total(), 1, "codes");
    remainder_ = b.optional_rows(a.remainder, lanes_.total(), a.x.width, "remainder");
    sums_ = b.scratch<float>(kTileSums * device_.pool().threads());
    scores_ = b.scratch<float>(int64_t{lanes_.total()} * codes_);
    for (int i = 0; i < codes_; ++i) longest_ = std::max(longest_, -half_square_[i]);
  }

  void run() override {
    const int n = x_.prepare(lanes_.active());
    for_tiles(device_.pool(), n, matrix_.groups(), n * matrix_.work(),
              [&](int first, int m, GroupRange range, int thread) {
                for (int group = range.first; group < range.end; ++group) score(first, m, group, thread);
              });
    for_rows(device_.pool(), n, codes_, [&](int i, int) { choose(i); });
  }

 private:
  /// Bounds the rounding of a sum of this many products, relative to the size of its terms.
  static constexpr float kDoubt = 1e-5f;

  void score(int first, int m, int group, int thread) const {
    float* sums = sums_.get() + thread * kTileSums;
    matrix_.product(device_.kernels(), x_.rows() + first, m, group, sums);
    float* out[kRowChunk];
    for (int i = 0; i < m; ++i)
      out[i] = scores_.get() + int64_t{first + i} * codes_ + matrix_.first_column(group);
    const Epilogue e{.bias = half_square_ + matrix_.first_column(group)};
    device_.kernels().finish(sums, matrix_.panels(group) * kPanel, m, matrix_.columns(group), e, nullptr,
                             out);
  }

  void choose(int i) const {
    const float* const x = x_.rows()[i];
    const float* const scores = scores_.get() + int64_t{i} * codes_;
    const int width = x_.width();
    float square = 0;
    for (int j = 0; j < width; ++j) square += x[j] * x[j];
    const float limit = *std::max_element(scores, scores + codes_) - kDoubt * (square + longest_);
    int best = 0;
    double least = INFINITY;
    for (int c = 0; c < codes_; ++c) {
      if (!(scores[c] >= limit)) continue;
      const double d = distance(x, c);
      if (d < least) least = d, best = c;
    }
    const int32_t row = x_.index(i);
    *out_[row] = best;
    if (!remainder_) return;
    const float* const entry = entry_of(best);
    float* const to = remainder_[row];
    for (int j = 0; j < width; ++j) to[j] = x[j] - entry[j];
  }

  const float* entry_of(int code) const {
    return reinterpret_cast<const float*>(entries_.table.data()) + int64_t{code} * x_.width();
  }
  double distance(const float* x, int code) const {
    const float* const entry = entry_of(code);
    double sum = 0;
    for (int j = 0; j < x_.width(); ++j) {
      const double d = static_cast<double>(x[j]) - entry[j];
      sum += d * d;
    }
    return sum;
  }

  CpuDevice& device_;
  LaneSet lanes_;
  InputRows x_;
  const LoadedWeight& entries_;
  int codes_;
  BoundMatrix matrix_;
  const float* half_square_ = nullptr;
  float longest_ = 0;
  Rows<int32_t> out_;
  Rows<float> remainder_;
  Scratch<float> sums_, scores_;
};

}  // namespace

void Recorder::padded_conv(const PaddedConv& a) { add<PaddedConvOp>("padded_conv", a, {a.out, a.state}); }
void Recorder::nearest_code(const NearestCode& a) {
  add<NearestCodeOp>("nearest_code", a, {a.codes, a.remainder});
}

}  // namespace skald::backend::cpu
