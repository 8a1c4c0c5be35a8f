// conv, conv_transposed and depthwise: causal, time-major, with carried state.
#include <fmt/format.h>

#include <cstring>

#include "backend/cpu/recorder.h"
#include "backend/cpu/tap_product.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

/// What both convolutions are: taps over time-major rows, and one set of columns per output phase.
struct ConvShape {
  Buffer x, state, residual, out;
  Snake snake;
  const PackedMatrix* weight = nullptr;
  const float* bias = nullptr;
  int taps = 1, dilation = 1;
  int phases = 1;  ///< output rows per input row
  float clip = 0;
  Lanes lanes;
  std::vector<Segment> segments;
};

/// An implicit matrix product. Input rows are taken in batches: for each, the history from the state and the
/// rows after the snake go to scratch, the state is renewed at once (so a batch border is nothing but a call
/// border), then the product runs over all rows of the batch.
class ConvolutionOp : public BoundOp {
 public:
  ConvolutionOp(Binder& b, ConvShape shape)
      : device_(b.device()),
        lanes_(b, shape.lanes),
        shape_(std::move(shape)),
        product_(b, *shape_.weight, std::move(shape_.segments), shape_.phases),
        inputs_(shape_.x.width) {
    const ConvShape& s = shape_;
    history_ = int64_t{s.taps - 1} * s.dilation;
    x_ = b.rows(s.x, lanes_.total(), inputs_, "x");
    out_ = b.rows(s.out, int64_t{lanes_.total()} * s.phases, s.weight->outputs, "out");
    residual_ =
        b.optional_rows(s.residual, int64_t{lanes_.total()} * s.phases, s.weight->outputs, "residual");
    if (history_ > 0) {
      state_ = b.rows(s.state, history_, inputs_, "state");
      slots_ = static_cast<int32_t>(s.state.rows / history_);
    }
    alpha_ = b.vector(s.snake.alpha);
    inverse_beta_ = b.vector(s.snake.inverse_beta);
    batch_ = std::min<int64_t>(lanes_.total(), std::max<int64_t>(2 * kRowChunk, kBatchFloats / inputs_));
    row_words_ = row_words(s.weight->layout, inputs_);
    scratch_ = b.scratch<float>((batch_ + history_ * lanes_.lanes()) * row_words_);
    if (is_pairs(s.weight->layout)) row_ = b.scratch<float>(int64_t{device_.pool().threads()} * inputs_);
    pointers_ = b.scratch<const float*>(batch_);
    index_ = b.scratch<int32_t>(batch_);
  }

  void run() override {
    const auto lanes = lanes_.active();
    if (history_ > 0)
      for (const ActiveLane& lane : lanes)
        if (lane.slot >= slots_)
          throw Error(ErrorCode::internal, fmt::format("slot {} has no state", lane.slot));
    int n = 0;                   // rows of the open batch
    float* to = scratch_.get();  // where its next row goes
    for (const ActiveLane& lane : lanes)
      for (int64_t done = 0; done < lane.rows;) {
        const int take = static_cast<int>(std::min<int64_t>(lane.rows - done, batch_ - n));
        const int32_t row = lane.row + static_cast<int32_t>(done);
        if (is_pairs(shape_.weight->layout))
          stage_quantised(lane, row, take, to);
        else
          stage(lane, row, take, to);
        for (int r = 0; r < take; ++r)
          pointers_.get()[n + r] = to + r * row_words_, index_.get()[n + r] = row + r;
        to += (history_ + take) * row_words_;
        n += take, done += take;
        if (n == batch_) multiply(n), n = 0, to = scratch_.get();
      }
    if (n > 0) multiply(n);
  }

 private:
  /// The input row as the product sees it.
  void activate(int32_t row, float* to) const {
    if (alpha_)
      device_.kernels().snake(x_[row], alpha_, inverse_beta_, inputs_, to);
    else
      std::copy_n(x_[row], inputs_, to);
  }

  /// Stages the state and `m` rows of a lane and renews the state.
  void stage(const ActiveLane& lane, int32_t row, int m, float* to) const {
    float* first = to + history_ * inputs_;
    for (int64_t h = 0; h < history_; ++h)
      std::copy_n(state_[lane.slot * history_ + h], inputs_, to + h * inputs_);
    for_rows(device_.pool(), m, 4 * inputs_,
             [&](int r, int) { activate(row + r, first + int64_t{r} * inputs_); });
    for (int64_t h = 0; h < history_; ++h)
      std::copy_n(to + (m + h) * inputs_, inputs_, state_[lane.slot * history_ + h]);
  }

  /// The same for quantised rows. The state stays float32: a row gives the same integers whether it is new or
  /// comes from there.
  void stage_quantised(const ActiveLane& lane, int32_t row, int m, float* to) const {
    const Kernels& k = device_.kernels();
    const int64_t state = lane.slot * history_, kept = std::max<int64_t>(0, history_ - m);
    for_rows(device_.pool(), history_, inputs_,
             [&](int h, int) { k.quantise(state_[state + h], inputs_, to + h * row_words_); });
    for (int64_t h = 0; h < kept; ++h) std::copy_n(state_[state + h + m], inputs_, state_[state + h]);
    for_rows(device_.pool(), m, 5 * inputs_, [&](int r, int thread) {
      float* const values = row_.get() + int64_t{thread} * inputs_;
      activate(row + r, values);
      k.quantise(values, inputs_, to + (history_ + r) * row_words_);
      if (const int64_t h = history_ - m + r; h >= 0) std::copy_n(values, inputs_, state_[state + h]);
    });
  }

  void multiply(int n) const {
    product_.run(pointers_.get(), index_.get(), n,
                 {.out = out_, .residual = residual_, .bias = shape_.bias, .clip = shape_.clip});
  }

  CpuDevice& device_;
  LaneSet lanes_;
  ConvShape shape_;
  TapProduct product_;
  int inputs_;
  int64_t history_ = 0, batch_ = 0, row_words_ = 0;
  int32_t slots_ = 0;
  Rows<float> x_, out_, residual_, state_;
  const float *alpha_ = nullptr, *inverse_beta_ = nullptr;
  Scratch<float> scratch_;
  Scratch<float> row_;  // of each thread, where rows are quantised
  Scratch<const float*> pointers_;
  Scratch<int32_t> index_;
};

ConvShape conv_shape(const Binder& b, const Conv& a) {
  const PackedMatrix& w = b.matrix(a.weight);
  return {
      .x = a.x,
      .state = a.state,
      .residual = a.residual,
      .out = a.out,
      .snake = a.snake,
      .weight = &w,
      .bias = b.vector(a.bias),
      .taps = a.kernel,
      .dilation = a.dilation,
      .phases = 1,
      .clip = a.clip,
      .lanes = a.lanes,
      .segments = plan_segments(w, a.kernel, a.dilation * row_words(w.layout, w.inputs), w.tap_elements())};
}

ConvShape transposed_shape(const Binder& b, const ConvTransposed& a) {
  const PackedMatrix& w = b.matrix(a.weight);
  const int taps = a.kernel / a.stride;
  // Input row t - i meets kernel index phase + i * stride; taps run from the oldest row to the newest.
  const int64_t step = a.stride * w.group_elements();
  std::vector<Segment> segments = plan_segments(w, taps, row_words(w.layout, w.inputs), -step);
  for (Segment& s : segments) s.weights += (taps - 1) * step;
  return {.x = a.x,
          .state = a.state,
          .residual = {},
          .out = a.out,
          .snake = a.snake,
          .weight = &w,
          .bias = b.vector(a.bias),
          .taps = taps,
          .dilation = 1,
          .phases = a.stride,
          .clip = 0,
          .lanes = a.lanes,
          .segments = std::move(segments)};
}

class ConvOp final : public ConvolutionOp {
 public:
  ConvOp(Binder& b, const Conv& a) : ConvolutionOp(b, conv_shape(b, a)) {}
};

class ConvTransposedOp final : public ConvolutionOp {
 public:
  ConvTransposedOp(Binder& b, const ConvTransposed& a) : ConvolutionOp(b, transposed_shape(b, a)) {}
};

class DepthwiseOp final : public BoundOp {
 public:
  DepthwiseOp(Binder& b, const Depthwise& a)
      : device_(b.device()), lanes_(b, a.lanes), taps_(a.kernel), channels_(a.x.width) {
    b.require(taps_ <= kMostTaps, "a depthwise convolution has at most 64 taps");
    weight_ = b.vector(a.weight);
    bias_ = b.vector(a.bias);
    x_ = b.rows(a.x, lanes_.total(), channels_, "x");
    out_ = b.rows(a.out, lanes_.total(), channels_, "out");
    if (taps_ == 1) return;
    state_ = b.rows(a.state, taps_ - 1, channels_, "state");
    slots_ = a.state.rows / (taps_ - 1);
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      if (taps_ > 1 && lane.slot >= slots_)
        throw Error(ErrorCode::internal, fmt::format("slot {} has no state", lane.slot));
      for_rows(device_.pool(), lane.rows, int64_t{taps_} * channels_, [&](int r, int) {
        const float* rows[kMostTaps];
        for (int t = 0; t < taps_; ++t) rows[t] = input(lane, r - (taps_ - 1) + t);
        device_.kernels().depthwise(rows, weight_, bias_, taps_, channels_, out_[lane.row + r]);
      });
      // Ascending order: a state row is overwritten only after it moved up.
      for (int h = 0; h < taps_ - 1; ++h)
        std::copy_n(input(lane, lane.rows - (taps_ - 1) + h), channels_, state_[state_row(lane, h)]);
    }
  }

 private:
  static constexpr int kMostTaps = 64;

  int64_t state_row(const ActiveLane& lane, int64_t h) const { return int64_t{lane.slot} * (taps_ - 1) + h; }
  /// Input row r of the lane; negative ones are in the state.
  const float* input(const ActiveLane& lane, int64_t r) const {
    return r >= 0 ? x_[lane.row + r] : state_[state_row(lane, taps_ - 1 + r)];
  }

  CpuDevice& device_;
  LaneSet lanes_;
  int taps_, channels_;
  int32_t slots_ = 0;
  const float *weight_ = nullptr, *bias_ = nullptr;
  Rows<float> x_, out_, state_;
};

}  // namespace

void Recorder::conv(const Conv& a) { add<ConvOp>("conv", a, {a.out, a.state}); }
void Recorder::conv_transposed(const ConvTransposed& a) {
  add<ConvTransposedOp>("conv_transposed", a, {a.out, a.state});
}
void Recorder::depthwise(const Depthwise& a) { add<DepthwiseOp>("depthwise", a, {a.out, a.state}); }

}  // namespace skald::backend::cpu
