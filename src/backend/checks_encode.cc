// Checks of recorded calls: the operations of the encoders.
#include "backend/checks.h"

namespace skald::backend {

void check(const Checker& c, const LogMel& a) {
  check(c, a.lanes);
  c.require(a.fft >= 2 && (a.fft & (a.fft - 1)) == 0, "fft should be a power of two");
  c.require(a.hop > 0 && a.hop <= a.fft && (a.fft - a.hop) % 2 == 0,
            "hop should be within fft, and even with it");
  c.require(a.lanes.rows >= a.hop, "a lane should hold one frame");
  c.require(bool{a.filters}, "filters are missing");
  c.require_vector(a.filters, int64_t{a.out.width} * (a.fft / 2 + 1), "filters");
  c.rows(a.x, a.lanes.total(), 1, "x");
  c.rows(a.out, int64_t{a.lanes.lanes} * (a.lanes.rows / a.hop), a.out.width, "out");
}

void check(const Checker& c, const PaddedConv& a) {
  check(c, a.lanes);
  const WeightShape& w = c.shape(a.weight, WeightRole::convolution, "weight");
  c.require(a.kernel == w.taps && a.dilation > 0 && a.stride > 0,
            "kernel differs from the weight's, or dilation or stride is not positive");
  c.require(w.inputs == a.x.width, "'x' is not as wide as the weight");
  c.require(a.before == Activation::none || a.before == Activation::elu, "'before' should be none or elu");
  c.require(a.lanes.rows % a.stride == 0, "rows should be a multiple of stride");
  const int64_t outputs = int64_t{a.lanes.lanes} * (a.lanes.rows / a.stride);
  c.rows(a.x, a.lanes.total(), w.inputs, "x");
  c.optional_rows(a.add, a.lanes.total(), w.inputs, "add");
  c.rows(a.out, outputs, w.outputs, "out");
  c.optional_rows(a.residual, outputs, w.outputs, "residual");
  c.require_vector(a.bias, w.outputs, "bias");
  c.optional_rows(a.lane_bias, a.lanes.lanes, w.outputs, "lane_bias");
  c.require(!a.lane_bias || !a.bias, "lane_bias takes the place of bias");
  c.require_disjoint(a.x, a.out, "'out' overlaps 'x'");
  c.require_disjoint(a.add, a.out, "'out' overlaps 'add'");
  if (a.padding == PaddedConv::reflect) {
    c.require(a.stride == 1 && !a.state, "mirrored padding needs stride 1 and no state");
    return;
  }
  const int64_t history = int64_t{a.kernel - 1} * a.dilation + 1 - a.stride;
  c.require(history >= 0, "the stride is longer than the kernel");
  c.require(a.padding == PaddedConv::zero || a.lanes.start, "'replicate' needs lanes.start");
  if (history == 0) return;
  c.require(a.state && a.state.rows % history == 0, "state rows should be slots * (span - stride)");
  c.rows(a.state, history, w.inputs, "state");
  c.require_disjoint(a.state, a.x, "'state' overlaps 'x'");
  c.require_disjoint(a.state, a.out, "'state' overlaps 'out'");
}

void check(const Checker& c, const Statistics& a) {
  check(c, a.lanes);
  c.rows(a.x, a.lanes.total(), a.x.width, "x");
  c.optional_rows(a.scores, a.lanes.total(), a.x.width, "scores");
  c.rows(a.out, a.lanes.lanes, a.out.width == a.x.width ? a.x.width : int64_t{2} * a.x.width, "out");
}

void check(const Checker& c, const ScaleRows& a) {
  check(c, a.lanes);
  c.rows(a.x, a.lanes.total(), a.x.width, "x");
  c.rows(a.gate, a.lanes.lanes, a.x.width, "gate");
  c.optional_rows(a.residual, a.lanes.total(), a.x.width, "residual");
  c.rows(a.out, a.lanes.total(), a.x.width, "out");
  c.require_disjoint(a.gate, a.out, "'out' overlaps 'gate'");
}

void check(const Checker& c, const NearestCode& a) {
  check(c, a.lanes);
  const WeightShape& entries = c.shape(a.entries, WeightRole::table, "entries");
  const auto codes = static_cast<int>(entries.rows);
  c.require(entries.width == a.x.width, "entries should be as wide as 'x'");
  c.require_matrix(a.matrix, codes, a.x.width, "matrix");
  c.require(bool{a.half_square}, "half_square is missing");
  c.require_vector(a.half_square, codes, "half_square");
  c.rows(a.x, a.lanes.total(), a.x.width, "x");
  c.rows<int32_t>(a.codes, a.lanes.total(), 1, "codes");
  c.optional_rows(a.remainder, a.lanes.total(), a.x.width, "remainder");
}

}  // namespace skald::backend
