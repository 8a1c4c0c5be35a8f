// The product of a convolution: staged rows times the taps of a packed weight. What differs between
// convolutions is how their rows are staged.
#pragma once

#include <utility>
#include <vector>

#include "backend/cpu/inputs.h"

namespace skald::backend::cpu {

constexpr int64_t kBatchFloats = 1 << 18;  ///< input rows worked on at once: about a second-level cache

/// Rows are given as pointers to their first tap. Input row `index` becomes the output rows index * phases,
/// ..., index * phases + phases - 1.
class TapProduct {
 public:
  struct Target {
    Rows<float> out, residual;  ///< residual may be absent
    const float* bias = nullptr;
    Activation activation = Activation::none;
    float clip = 0;
  };

  TapProduct(Binder& b, const PackedMatrix& weight, std::vector<Segment> segments, int phases = 1)
      : device_(b.device()), weight_(weight), segments_(std::move(segments)), phases_(phases) {
    sums_ = b.scratch<float>(kTileSums * device_.pool().threads());
  }

  void run(const float* const* rows, const int32_t* index, int n, const Target& to) const {
    const int phase_groups = (weight_.panels() + kGroup - 1) / kGroup;
    const int64_t work = int64_t{n} * weight_.taps * weight_.groups * weight_.inputs * weight_.outputs;
    for_tiles(
        device_.pool(), n, phase_groups * phases_, work, [&](int first, int m, GroupRange range, int thread) {
          for (int group = range.first; group < range.end; ++group)
            tile(rows + first, index + first, m, group / phase_groups, group % phase_groups, thread, to);
        });
  }

 private:
  void tile(const float* const* rows, const int32_t* index, int m, int phase, int group, int thread,
            const Target& to) const {
    const int column = group * kGroup * kPanel;
    const int columns = std::min(kGroup * kPanel, weight_.outputs - column);
    const int panels = (columns + kPanel - 1) / kPanel;
    float* sums = sums_.get() + thread * kTileSums;
    multiply(device_.kernels(), rows, m, segments_,
             weight_.panels_from(phases_ > 1 ? phase : 0, group * kGroup, panels), sums);
    const float* residual[kRowChunk];
    float* out[kRowChunk];
    for (int i = 0; i < m; ++i) {
      const int64_t row = int64_t{index[i]} * phases_ + phase;
      out[i] = to.out[row] + column;
      residual[i] = to.residual ? to.residual[row] + column : nullptr;
    }
    const Epilogue e{
        .bias = to.bias ? to.bias + column : nullptr, .activation = to.activation, .clip = to.clip};
    device_.kernels().finish(sums, int64_t{panels} * kPanel, m, columns, e, to.residual ? residual : nullptr,
                             out);
  }

  CpuDevice& device_;
  const PackedMatrix& weight_;
  std::vector<Segment> segments_;
  int phases_;
  Scratch<float> sums_;
};

}  // namespace skald::backend::cpu
