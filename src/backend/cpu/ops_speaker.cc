// log_mel, statistics and scale_rows: what the speaker encoder needs beyond convolutions.
#include <cmath>
#include <limits>

#include "backend/cpu/fft.h"
#include "backend/cpu/recorder.h"
#include "backend/cpu/tasks.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

constexpr double kPi = 3.141592653589793;

/// The numbers are those of a float32 front end up to its own rounding: the window is rounded to float32, the
/// rest is done in double precision, two frames a transform.
class LogMelOp final : public BoundOp {
 public:
  LogMelOp(Binder& b, const LogMel& a)
      : device_(b.device()), lanes_(b, a.lanes), call_(a), fft_(checked_size(b, a)), bands_(a.out.width) {
    const int bins = a.fft / 2 + 1;
    const float* filters = b.vector(a.filters, int64_t{bands_} * bins, "filters");
    b.require(filters != nullptr, "filters are missing");
    for (int band = 0; band < bands_; ++band) filters_.push_back(trim(filters + int64_t{band} * bins, bins));
    x_ = b.rows(a.x, lanes_.total(), 1, "x");
    out_ = b.rows(a.out, int64_t{lanes_.lanes()} * frames_per_lane(), bands_, "out");
    for (int i = 0; i < a.fft; ++i)
      window_.push_back(static_cast<float>(0.5 - 0.5 * std::cos(2 * kPi * i / a.fft)));
    work_.resize(static_cast<size_t>(device_.pool().threads()),
                 std::vector<std::complex<double>>(static_cast<size_t>(a.fft)));
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active()) {
      if (lane.rows <= padding())
        throw Error(ErrorCode::internal, std::to_string(lane.rows) + " samples are too few to be mirrored");
      const int frames = lane.rows / call_.hop;
      for_rows(device_.pool(), (frames + 1) / 2, 64 * int64_t{call_.fft},
               [&](int pair, int thread) { transform(lane, 2 * pair, frames, thread); });
    }
  }

 private:
  /// A filter without the zeros on both sides.
  struct Filter {
    int first = 0;
    std::vector<float> weights;
  };

  static int checked_size(const Binder& b, const LogMel& a) {
    b.require(a.fft >= 2 && (a.fft & (a.fft - 1)) == 0, "fft should be a power of two");
    b.require(a.hop > 0 && a.hop <= a.fft && (a.fft - a.hop) % 2 == 0,
              "hop should be within fft, and even with it");
    b.require(a.lanes.rows >= a.hop, "a lane should hold one frame");
    return a.fft;
  }
  static Filter trim(const float* weights, int bins) {
    int first = 0, end = bins;
    while (first < end && weights[first] == 0) ++first;
    while (end > first && weights[end - 1] == 0) --end;
    return {first, {weights + first, weights + end}};
  }

  int padding() const { return (call_.fft - call_.hop) / 2; }
  int frames_per_lane() const { return lanes_.rows() / call_.hop; }

  double sample(const ActiveLane& lane, int64_t i) const {
    const int64_t n = lane.rows;
    return *x_[lane.row + (i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i)];
  }

  void transform(const ActiveLane& lane, int frame, int frames, int thread) {
    std::vector<std::complex<double>>& z = work_[static_cast<size_t>(thread)];
    const bool both = frame + 1 < frames;
    const int64_t start = int64_t{frame} * call_.hop - padding();
    for (int i = 0; i < call_.fft; ++i) {
      const double w = window_[static_cast<size_t>(i)];
      z[static_cast<size_t>(i)] = {w * sample(lane, start + i),
                                   both ? w * sample(lane, start + call_.hop + i) : 0.0};
    }
    fft_.transform(z);
    const int64_t row = int64_t{lane.lane} * frames_per_lane() + frame;
    filter(out_[row], [&](int k) { return fft_.first(z, k); });
    if (both) filter(out_[row + 1], [&](int k) { return fft_.second(z, k); });
  }

  template <class Bin>
  void filter(float* out, Bin&& bin) const {
    for (int band = 0; band < bands_; ++band) {
      const Filter& f = filters_[static_cast<size_t>(band)];
      double sum = 0;
      for (size_t i = 0; i < f.weights.size(); ++i)
        sum += f.weights[i] * std::sqrt(std::norm(bin(f.first + static_cast<int>(i))) + 1e-9);
      out[band] = static_cast<float>(std::log(std::max(sum, static_cast<double>(call_.floor))));
    }
  }

  CpuDevice& device_;
  LaneSet lanes_;
  LogMel call_;
  Fft fft_;
  int bands_;
  std::vector<float> window_;
  std::vector<Filter> filters_;
  Rows<float> x_, out_;
  std::vector<std::vector<std::complex<double>>> work_;  // one per thread
};

/// Channels in strips, sums over the rows in double precision.
class StatisticsOp final : public BoundOp {
 public:
  StatisticsOp(Binder& b, const Statistics& a)
      : device_(b.device()), lanes_(b, a.lanes), width_(a.x.width), deviations_(a.out.width != a.x.width) {
    x_ = b.rows(a.x, lanes_.total(), width_, "x");
    scores_ = b.optional_rows(a.scores, lanes_.total(), width_, "scores");
    out_ = b.rows(a.out, lanes_.lanes(), deviations_ ? 2 * width_ : width_, "out");
  }

  void run() override {
    const int strips = (width_ + kStrip - 1) / kStrip;
    for (const ActiveLane& lane : lanes_.active())
      for_rows(device_.pool(), strips, 8 * int64_t{kStrip} * lane.rows, [&](int strip, int) {
        const int first = strip * kStrip;
        pool(lane, first, std::min(kStrip, width_ - first));
      });
  }

 private:
  static constexpr int kStrip = 16;  ///< channels of one task: a cache line of each row

  void pool(const ActiveLane& lane, int first, int count) const {
    float most[kStrip];
    double total[kStrip] = {}, mean[kStrip] = {}, spread[kStrip] = {};
    std::fill_n(most, kStrip, -std::numeric_limits<float>::infinity());
    if (scores_)
      for (int32_t r = 0; r < lane.rows; ++r) {
        const float* s = scores_[lane.row + r] + first;
        for (int i = 0; i < count; ++i) most[i] = std::max(most[i], s[i]);
      }
    const auto weight = [&](int32_t r, int i) {
      return scores_ ? std::exp(scores_[lane.row + r][first + i] - most[i]) : 1.0f;
    };
    for (int32_t r = 0; r < lane.rows; ++r) {
      const float* x = x_[lane.row + r] + first;
      for (int i = 0; i < count; ++i) {
        const double w = weight(r, i);
        total[i] += w, mean[i] += w * x[i];
      }
    }
    float* const out = out_[lane.lane] + first;
    for (int i = 0; i < count; ++i) mean[i] /= total[i], out[i] = static_cast<float>(mean[i]);
    if (!deviations_) return;
    for (int32_t r = 0; r < lane.rows; ++r) {
      const float* x = x_[lane.row + r] + first;
      for (int i = 0; i < count; ++i) {
        const double d = x[i] - mean[i];
        spread[i] += weight(r, i) * d * d;
      }
    }
    for (int i = 0; i < count; ++i)
      out[width_ + i] = static_cast<float>(std::sqrt(std::max(spread[i] / total[i], 1e-12)));
  }

  CpuDevice& device_;
  LaneSet lanes_;
  int width_;
  bool deviations_;
  Rows<float> x_, scores_, out_;
};

class ScaleRowsOp final : public BoundOp {
 public:
  ScaleRowsOp(Binder& b, const ScaleRows& a) : device_(b.device()), lanes_(b, a.lanes), width_(a.x.width) {
    x_ = b.rows(a.x, lanes_.total(), width_, "x");
    gate_ = b.rows(a.gate, lanes_.lanes(), width_, "gate");
    residual_ = b.optional_rows(a.residual, lanes_.total(), width_, "residual");
    out_ = b.rows(a.out, lanes_.total(), width_, "out");
    b.require_disjoint(a.gate, a.out, "'out' overlaps 'gate'");
  }

  void run() override {
    for (const ActiveLane& lane : lanes_.active())
      for_rows(device_.pool(), lane.rows, width_, [&](int r, int) {
        const int32_t row = lane.row + r;
        device_.kernels().scale_add(x_[row], gate_[lane.lane], residual_ ? residual_[row] : nullptr, width_,
                                    out_[row]);
      });
  }

 private:
  CpuDevice& device_;
  LaneSet lanes_;
  int width_;
  Rows<float> x_, gate_, residual_, out_;
};

}  // namespace

void Recorder::log_mel(const LogMel& a) { add<LogMelOp>("log_mel", a, {a.out}); }
void Recorder::statistics(const Statistics& a) { add<StatisticsOp>("statistics", a, {a.out}); }
void Recorder::scale_rows(const ScaleRows& a) { add<ScaleRowsOp>("scale_rows", a, {a.out}); }

}  // namespace skald::backend::cpu
