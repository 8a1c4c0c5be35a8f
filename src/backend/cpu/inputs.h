// The valid rows of an op, normalised where it asks for that, and products over them.
#pragma once

#include "backend/cpu/binder.h"
#include "backend/cpu/tasks.h"

namespace skald::backend::cpu {

/// Gathers the valid rows of an op's input as its matrices take them. With a norm, each row is normalised
/// once into scratch; for pairs it is quantised once.
class InputRows {
 public:
  InputRows(Binder& binder, const Buffer& x, const Norm& norm, const LaneSet& lanes,
            std::initializer_list<Weight> matrices = {});

  /// Reads the lanes and prepares their rows; returns how many there are.
  int prepare(std::span<const ActiveLane> lanes);

  int width() const { return width_; }
  const float* const* rows() const { return pointers_.get(); }  ///< row i of the valid ones
  int32_t index(int i) const { return index_.get()[i]; }        ///< its number in the program's buffers

 private:
  CpuDevice& device_;
  Norm::Kind norm_;
  const float *weight_ = nullptr, *bias_ = nullptr;
  float epsilon_ = 0;
  int width_ = 0;
  Layout layout_ = Layout::f32;
  Rows<float> x_;
  Scratch<float> normed_;  // a row for each thread where rows are quantised, else all of them
  Scratch<float> quantised_;
  Scratch<const float*> pointers_;
  Scratch<int32_t> index_;
};

/// A matrix bound to the layout of its input rows.
struct BoundMatrix {
  const PackedMatrix* matrix = nullptr;
  std::vector<Segment> segments;

  explicit BoundMatrix(const PackedMatrix& m) : matrix(&m), segments(plan_segments(m, 1, 0, 0)) {}
  int groups() const { return (matrix->panels() + kGroup - 1) / kGroup; }
  int64_t work() const { return int64_t{matrix->outputs} * matrix->inputs; }
  int first_column(int group) const { return group * kGroup * kPanel; }
  int columns(int group) const { return std::min(kGroup * kPanel, matrix->outputs - first_column(group)); }
  int panels(int group) const { return (columns(group) + kPanel - 1) / kPanel; }
  /// Sums of one column group for `m` rows, row stride panels(group) * kPanel.
  void product(const Kernels& kernels, const float* const* rows, int m, int group, float* sums) const {
    multiply(kernels, rows, m, segments, matrix->panels_from(0, group * kGroup, panels(group)), sums);
  }
};

constexpr int64_t kTileSums = int64_t{kRowChunk} * kGroup * kPanel;  ///< floats of one task's sums

}  // namespace skald::backend::cpu
