// What a recorded call moves and computes, from its arguments alone.
//
// Counted are the bytes that come from memory however good the caches are: packed weights, table entries,
// keys and values. Activations are not, and of the arithmetic only products, convolutions and attention are:
// the rest is below one percent.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "backend/ops.h"

namespace skald::diagnose {

/// Bytes of a loaded weight as the device holds it; of a table, bytes of one entry; 0 for an absent one.
using WeightBytes = std::function<uint64_t(backend::Weight)>;

/// Cost of one call, before it is known which rows count.
struct OpCost {
  uint64_t weight_bytes = 0;                ///< read once, however many rows there are
  uint64_t unit_bytes = 0, unit_flops = 0;  ///< per counted unit, that is Lanes::rate rows
  uint64_t key_bytes = 0, key_flops = 0;    ///< attention: per position that a row looks at
  int32_t window = 0;                       ///< attention: most positions a row looks at, 0 = all
  int32_t rate = 1;
};

OpCost cost_of(const backend::GatherSum& call, const WeightBytes& bytes);
OpCost cost_of(const backend::Linear& call, const WeightBytes& bytes);
OpCost cost_of(const backend::GatedPair& call, const WeightBytes& bytes);
OpCost cost_of(const backend::QkvRope& call, const WeightBytes& bytes);
OpCost cost_of(const backend::Attention& call, const WeightBytes& bytes);
OpCost cost_of(const backend::Conv& call, const WeightBytes& bytes);
OpCost cost_of(const backend::ConvTransposed& call, const WeightBytes& bytes);
OpCost cost_of(const backend::Depthwise& call, const WeightBytes& bytes);

/// Rows of one lane that count in a run: `units` of them, the first at `position`.
struct LaneRun {
  int64_t units = 0, position = 0;
};

/// What one run of a call moved and computed.
struct Work {
  double weight_bytes = 0, state_bytes = 0;  ///< state: table entries, keys and values
  double flops = 0;                          ///< a multiply-add is two
  double bytes() const { return weight_bytes + state_bytes; }
  Work& operator+=(const Work& other);
};

Work work_of(const OpCost& cost, std::span<const LaneRun> lanes);

}  // namespace skald::diagnose
