// linear and gated_pair.
#include "backend/cpu/inputs.h"
#include "backend/cpu/recorder.h"

namespace skald::backend::cpu {

InputRows::InputRows(Binder& binder, const Buffer& x, const Norm& norm, const LaneSet& lanes,
                     std::initializer_list<Weight> matrices)
    : device_(binder.device()), norm_(norm.kind), epsilon_(norm.epsilon), width_(x.width) {
  for (const Weight& matrix : matrices) {
    const Layout layout = binder.matrix(matrix).layout;
    if (&matrix == matrices.begin()) layout_ = layout;
    binder.require(is_pairs(layout) == is_pairs(layout_), "matrices of one input are all fast or all exact");
  }
  x_ = binder.rows(x, lanes.total(), x.width, "x");
  pointers_ = binder.scratch<const float*>(lanes.total());
  index_ = binder.scratch<int32_t>(lanes.total());
  const bool quantises = is_pairs(layout_);
  if (quantises) quantised_ = binder.scratch<float>(lanes.total() * row_words(layout_, width_));
  if (norm_ == Norm::none) return;
  weight_ = binder.vector(norm.weight);
  bias_ = binder.vector(norm.bias);
  normed_ = binder.scratch<float>(int64_t{quantises ? device_.pool().threads() : lanes.total()} * width_);
}

int InputRows::prepare(std::span<const ActiveLane> lanes) {
  const float** pointers = pointers_.get();
  int32_t* index = index_.get();
  int n = 0;
  for (const ActiveLane& lane : lanes)
    for (int32_t r = 0; r < lane.rows; ++r, ++n) index[n] = lane.row + r, pointers[n] = x_[lane.row + r];
  const bool quantises = is_pairs(layout_);
  if (norm_ == Norm::none && !quantises) return n;
  const Kernels& k = device_.kernels();
  for_rows(device_.pool(), n, quantises ? 2 * width_ : width_, [&](int i, int thread) {
    if (norm_ != Norm::none) {
      float* const to = normed_.get() + int64_t{quantises ? thread : i} * width_;
      if (norm_ == Norm::rms)
        k.rms_norm(pointers[i], weight_, epsilon_, width_, to);
      else
        k.layer_norm(pointers[i], weight_, bias_, epsilon_, width_, to);
      pointers[i] = to;
    }
    if (quantises) {
      float* const words = quantised_.get() + i * row_words(layout_, width_);
      k.quantise(pointers[i], width_, words);
      pointers[i] = words;
    }
  });
  return n;
}

namespace {

class LinearOp final : public BoundOp {
 public:
  LinearOp(Binder& b, const Linear& a)
      : device_(b.device()),
        lanes_(b, a.lanes),
        x_(a.weight ? InputRows(b, a.x, a.norm, lanes_, {a.weight}) : InputRows(b, a.x, a.norm, lanes_)),
        columns_(a.out.width) {
    out_ = b.rows(a.out, lanes_.total(), columns_, "out");
    residual_ = b.optional_rows(a.residual, lanes_.total(), columns_, "residual");
    epilogue_ = {.bias = b.vector(a.bias), .scale = b.vector(a.scale), .activation = a.activation};
    if (!a.weight) return;
    matrix_.emplace_back(b.matrix(a.weight));
    sums_ = b.scratch<float>(kTileSums * device_.pool().threads());
  }

  void run() override {
    const int n = x_.prepare(lanes_.active());
    if (matrix_.empty())
      for_rows(device_.pool(), n, columns_,
               [&](int i, int) { store(x_.rows()[i], columns_, i, 1, 0, columns_); });
    else
      for_tiles(device_.pool(), n, matrix_[0].groups(), n * matrix_[0].work(),
                [&](int first, int m, GroupRange range, int thread) {
                  for (int group = range.first; group < range.end; ++group) multiply(first, m, group, thread);
                });
  }

 private:
  void multiply(int first, int m, int group, int thread) {
    const BoundMatrix& matrix = matrix_[0];
    float* sums = sums_.get() + thread * kTileSums;
    matrix.product(device_.kernels(), x_.rows() + first, m, group, sums);
    store(sums, matrix.panels(group) * kPanel, first, m, matrix.first_column(group), matrix.columns(group));
  }

  /// Rows [first, first + m) of the valid ones, columns [column, column + columns).
  void store(const float* sums, int64_t stride, int first, int m, int column, int columns) {
    const float* residual[kRowChunk];
    float* out[kRowChunk];
    for (int i = 0; i < m; ++i) {
      const int32_t row = x_.index(first + i);
      out[i] = out_[row] + column;
      residual[i] = residual_ ? residual_[row] + column : nullptr;
    }
    Epilogue e = epilogue_;
    if (e.bias) e.bias += column;
    if (e.scale) e.scale += column;
    device_.kernels().finish(sums, stride, m, columns, e, residual_ ? residual : nullptr, out);
  }

  CpuDevice& device_;
  LaneSet lanes_;
  InputRows x_;
  int columns_;
  std::vector<BoundMatrix> matrix_;  // one or none
  Rows<float> out_, residual_;
  Epilogue epilogue_;
  Scratch<float> sums_;
};

class GatedPairOp final : public BoundOp {
 public:
  GatedPairOp(Binder& b, const GatedPair& a)
      : device_(b.device()),
        lanes_(b, a.lanes),
        x_(b, a.x, a.norm, lanes_, {a.gate, a.up}),
        gate_(b.matrix(a.gate)),
        up_(b.matrix(a.up)) {
    out_ = b.rows(a.out, lanes_.total(), a.out.width, "out");
    sums_ = b.scratch<float>(2 * kTileSums * device_.pool().threads());
  }

  void run() override {
    const int n = x_.prepare(lanes_.active());
    for_tiles(device_.pool(), n, gate_.groups(), 2 * n * gate_.work(),
              [&](int first, int m, GroupRange range, int thread) { multiply(first, m, range, thread); });
  }

 private:
  /// One matrix after the other, so that each is read in one run.
  void multiply(int first, int m, GroupRange range, int thread) {
    const Kernels& k = device_.kernels();
    float* const gate = sums_.get() + 2 * thread * kTileSums;
    float* const up = gate + kTileSums;
    const int64_t step = int64_t{m} * kGroup * kPanel;
    for (int g = range.first; g < range.end; ++g)
      gate_.product(k, x_.rows() + first, m, g, gate + (g - range.first) * step);
    for (int g = range.first; g < range.end; ++g)
      up_.product(k, x_.rows() + first, m, g, up + (g - range.first) * step);
    float* out[kRowChunk];
    for (int g = range.first; g < range.end; ++g) {
      for (int i = 0; i < m; ++i) out[i] = out_[x_.index(first + i)] + gate_.first_column(g);
      const int64_t at = (g - range.first) * step;
      k.gate(gate + at, up + at, gate_.panels(g) * kPanel, m, gate_.columns(g), out);
    }
  }

  CpuDevice& device_;
  LaneSet lanes_;
  InputRows x_;
  BoundMatrix gate_, up_;
  Rows<float> out_;
  Scratch<float> sums_;
};

}  // namespace

void Recorder::linear(const Linear& a) { add<LinearOp>("linear", a, {a.out}); }
void Recorder::gated_pair(const GatedPair& a) { add<GatedPairOp>("gated_pair", a, {a.out}); }

}  // namespace skald::backend::cpu
