// Costs of the operations of backend/ops.h.
#include "diagnose/op_cost.h"

#include <algorithm>

namespace skald::diagnose {

using backend::Weight;

namespace {

/// A product of `inputs` x `outputs` per row, with its weights and parameters.
OpCost product(const backend::Lanes& lanes, int64_t inputs, int64_t outputs,
               std::initializer_list<Weight> weights, const WeightBytes& bytes) {
  OpCost cost{.rate = lanes.rate};
  cost.unit_flops = 2 * static_cast<uint64_t>(inputs * outputs * lanes.rate);
  for (const Weight weight : weights) cost.weight_bytes += bytes(weight);
  return cost;
}

}  // namespace

OpCost cost_of(const backend::GatherSum& a, const WeightBytes& bytes) {
  uint64_t row = 0;
  for (const Weight table : a.tables) row += bytes(table);
  if (a.stored) row += static_cast<uint64_t>(a.out.width) * dtype_size(a.stored.dtype);
  return {.unit_bytes = row * a.lanes.rate, .rate = a.lanes.rate};
}

OpCost cost_of(const backend::Linear& a, const WeightBytes& bytes) {
  return product(a.lanes, a.weight ? a.x.width : 0, a.out.width,
                 {a.weight, a.bias, a.scale, a.norm.weight, a.norm.bias}, bytes);
}

OpCost cost_of(const backend::GatedPair& a, const WeightBytes& bytes) {
  return product(a.lanes, a.x.width, 2 * int64_t{a.out.width}, {a.gate, a.up, a.norm.weight, a.norm.bias},
                 bytes);
}

OpCost cost_of(const backend::QkvRope& a, const WeightBytes& bytes) {
  const int64_t kept = int64_t{a.kv_heads} * a.head_dim;
  OpCost cost = product(a.lanes, a.x.width, int64_t{a.heads} * a.head_dim + 2 * kept,
                        {a.wq, a.wk, a.wv, a.q_norm, a.k_norm, a.norm.weight, a.norm.bias}, bytes);
  cost.unit_bytes = 2 * static_cast<uint64_t>(kept * a.lanes.rate) * dtype_size(a.cache.k.dtype);
  return cost;
}

OpCost cost_of(const backend::Attention& a, const WeightBytes&) {
  return {.key_bytes = 2 * static_cast<uint64_t>(a.kv_heads) * a.head_dim * dtype_size(a.cache.k.dtype),
          .key_flops = 4 * static_cast<uint64_t>(a.heads) * a.head_dim,  // scores and the weighted sum
          .window = a.window,
          .rate = a.lanes.rate};
}

OpCost cost_of(const backend::Conv& a, const WeightBytes& bytes) {
  return product(a.lanes, int64_t{a.kernel} * a.x.width, a.out.width,
                 {a.weight, a.bias, a.snake.alpha, a.snake.inverse_beta}, bytes);
}

OpCost cost_of(const backend::ConvTransposed& a, const WeightBytes& bytes) {
  return product(a.lanes, int64_t{a.kernel} * a.x.width, a.out.width,
                 {a.weight, a.bias, a.snake.alpha, a.snake.inverse_beta}, bytes);
}

OpCost cost_of(const backend::Depthwise& a, const WeightBytes& bytes) {
  return product(a.lanes, a.kernel, a.x.width, {a.weight, a.bias}, bytes);
}

Work& Work::operator+=(const Work& other) {
  weight_bytes += other.weight_bytes, state_bytes += other.state_bytes, flops += other.flops;
  return *this;
}

Work work_of(const OpCost& cost, std::span<const LaneRun> lanes) {
  Work work;
  if (lanes.empty()) return work;
  work.weight_bytes = static_cast<double>(cost.weight_bytes);
  for (const LaneRun& lane : lanes) {
    const auto units = static_cast<double>(lane.units);
    work.state_bytes += units * static_cast<double>(cost.unit_bytes);
    work.flops += units * static_cast<double>(cost.unit_flops);
    if (cost.key_bytes == 0) continue;
    // Rows of one lane share the keys that they read.
    const int64_t rows = lane.units * cost.rate, last = lane.position + rows - 1;
    const auto first_of = [&](int64_t row) {
      return cost.window > 0 ? std::max<int64_t>(0, row - cost.window + 1) : 0;
    };
    int64_t keys = 0;
    for (int64_t row = lane.position; row <= last; ++row) keys += row - first_of(row) + 1;
    work.state_bytes +=
        static_cast<double>(cost.key_bytes) * static_cast<double>(last - first_of(lane.position) + 1);
    work.flops += static_cast<double>(cost.key_flops) * static_cast<double>(keys);
  }
  return work;
}

}  // namespace skald::diagnose
