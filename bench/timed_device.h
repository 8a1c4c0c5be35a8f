// A device that times every op it runs, with the weight bytes the op reads and the multiply-adds it does.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace skald::bench {

using backend::Buffer;
using backend::Ops;
using backend::Program;
using backend::Weight;
using Clock = std::chrono::steady_clock;

inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What one recorded op reads and computes at its full number of rows.
struct Cost {
  double bytes = 0, flops = 0;
};

/// Size of a loaded weight as the device holds it.
struct WeightSize {
  double bytes = 0, elements = 0;
};

/// Forwards every call and notes its cost.
class CountingOps final : public Ops {
 public:
  CountingOps(Ops& inner, const std::vector<WeightSize>& weights, std::vector<Cost>& costs)
      : inner_(inner), weights_(weights), costs_(costs) {}

  void gather_sum(const backend::GatherSum& a) override { inner_.gather_sum(a), note({}, 0); }
  void linear(const backend::Linear& a) override { inner_.linear(a), note({a.weight}, a.lanes.total()); }
  void gated_pair(const backend::GatedPair& a) override {
    inner_.gated_pair(a), note({a.gate, a.up}, a.lanes.total());
  }
  void rope_angles(const backend::RopeAngles& a) override { inner_.rope_angles(a), note({}, 0); }
  void qkv_rope(const backend::QkvRope& a) override {
    inner_.qkv_rope(a), note({a.wq, a.wk, a.wv}, a.lanes.total());
  }
  void attention(const backend::Attention& a) override { inner_.attention(a), note({}, 0); }
  void store_rows(const backend::StoreRows& a) override { inner_.store_rows(a), note({}, 0); }
  void copy(const backend::Copy& a) override { inner_.copy(a), note({}, 0); }
  void sample(const backend::Sample& a) override { inner_.sample(a), note({}, 0); }
  void publish_frame(const backend::PublishFrame& a) override { inner_.publish_frame(a), note({}, 0); }
  void advance(const backend::Advance& a) override { inner_.advance(a), note({}, 0); }
  void conv(const backend::Conv& a) override { inner_.conv(a), note({a.weight}, a.lanes.total()); }
  void conv_transposed(const backend::ConvTransposed& a) override {
    inner_.conv_transposed(a), note({a.weight}, a.lanes.total());
  }
  void depthwise(const backend::Depthwise& a) override {
    inner_.depthwise(a), note({a.weight}, a.lanes.total());
  }
  void label(std::string_view where) override { inner_.label(where); }

 private:
  void note(std::initializer_list<Weight> weights, int rows) {
    Cost cost;
    for (const Weight w : weights) {
      if (!w) continue;
      const WeightSize& size = weights_[static_cast<size_t>(w.id)];
      cost.bytes += size.bytes, cost.flops += 2.0 * rows * size.elements;
    }
    costs_.push_back(cost);
  }

  Ops& inner_;
  const std::vector<WeightSize>& weights_;
  std::vector<Cost>& costs_;
};

/// A device that times each op of the programs it runs.
class TimedDevice final : public backend::Backend {
 public:
  struct Op {
    Cost cost;
    std::vector<double> times;  ///< seconds, one per run
  };
  struct Recorded {
    std::string name;
    std::vector<Op> ops;
    std::vector<double> runs;  ///< seconds of the whole program
  };

  explicit TimedDevice(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  Weight load(backend::WeightRole role, const backend::TensorSource& source) override {
    const size_t before = inner_->weight_bytes();
    const Weight w = inner_->load(role, source);
    const double elements =
        std::accumulate(source.shape.begin(), source.shape.end(), 1.0, std::multiplies<>());
    sizes_.resize(static_cast<size_t>(w.id) + 1);
    sizes_.back() = {static_cast<double>(inner_->weight_bytes() - before), elements};
    return w;
  }
  Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows, int32_t width) override {
    return inner_->allocate(label, dtype, rows, width);
  }
  void write(const Buffer& to, std::span<const std::byte> bytes) override { inner_->write(to, bytes); }
  void read(const Buffer& from, std::span<std::byte> bytes) override { inner_->read(from, bytes); }
  void zero(const Buffer& view) override { inner_->zero(view); }
  Program record(std::string_view name, const std::function<void(Ops&)>& body) override {
    std::vector<Cost> costs;
    const Program p = inner_->record(name, [&](Ops& ops) {
      CountingOps counting(ops, sizes_, costs);
      body(counting);
    });
    Recorded recorded{std::string(name), {}, {}};
    for (const Cost& c : costs) recorded.ops.push_back({c, {}});
    recorded_.resize(std::max(recorded_.size(), static_cast<size_t>(p.id) + 1));
    recorded_[static_cast<size_t>(p.id)] = std::move(recorded);
    return p;
  }
  void run(Program p) override {
    Recorded& r = recorded_[static_cast<size_t>(p.id)];
    const auto first = Clock::now();
    for (size_t i = 0; i < r.ops.size(); ++i) {
      const auto start = Clock::now();
      inner_->run_op(p, i);
      r.ops[i].times.push_back(seconds_since(start));
    }
    r.runs.push_back(seconds_since(first));
  }
  std::span<const backend::OpRecord> ops(Program p) const override { return inner_->ops(p); }
  void run_op(Program p, size_t i) override { inner_->run_op(p, i); }
  size_t weight_bytes() const override { return inner_->weight_bytes(); }
  size_t buffer_bytes() const override { return inner_->buffer_bytes(); }

  void forget() {
    for (Recorded& r : recorded_) {
      r.runs.clear();
      for (Op& op : r.ops) op.times.clear();
    }
  }
  const std::vector<Recorded>& recorded() const { return recorded_; }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<WeightSize> sizes_;
  std::vector<Recorded> recorded_;
};

}  // namespace skald::bench
