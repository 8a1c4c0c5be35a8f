// A CPU device for the micro-benchmarks, with weights and buffers of arbitrary numbers, and how rates are
// counted.
#pragma once

#include <benchmark/benchmark.h>

#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/cpu.h"

namespace skald::backend {

constexpr int kThreads = 2;

inline std::vector<float> values(int64_t count, float scale) {
  std::minstd_rand random(1);
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) x = scale * (static_cast<float>(random()) / 1073741823.5f - 1);
  return v;
}

/// A device and what a benchmark needs on it.
struct Bench {
  std::deque<std::vector<float>> kept;  ///< tables are read where they lie
  std::unique_ptr<Backend> device;
  explicit Bench(int threads, const char* weights = "auto", const char* compute = "exact")
      : device(make_cpu_backend({.threads = threads, .weights = weights, .compute = compute})) {}

  Weight load(WeightRole role, std::vector<int64_t> shape) {
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float> v = values(count, 0.05f);
    const std::span<const float> data = role == WeightRole::table ? kept.emplace_back(std::move(v)) : v;
    return device->load(role, {.name = "w", .shape = std::move(shape), .data = std::as_bytes(data)});
  }
  Buffer buffer(int64_t rows, int32_t width) {
    const Buffer b = device->allocate("b", Dtype::f32, rows, width);
    const std::vector<float> v = values(rows * width, 1);
    device->write(b, std::as_bytes(std::span(v)));
    return b;
  }
  Buffer numbers(int64_t rows, int32_t width, int32_t value) {
    const Buffer b = device->allocate("i", Dtype::i32, rows, width);
    const std::vector<int32_t> v(static_cast<size_t>(rows * width), value);
    device->write(b, std::as_bytes(std::span(v)));
    return b;
  }
  Lanes lanes(int rows, int position = 0) {
    return {.lanes = 1, .rows = rows, .slot = numbers(1, 1, 0), .start = numbers(1, 1, position)};
  }
};

/// Bytes: weights, table rows, keys and values, each once, as they are held; flops: two a multiply-add.
inline void set_rates(benchmark::State& state, double bytes, double flops) {
  const auto n = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * n / 1e9, benchmark::Counter::kIsRate);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * n / 1e9, benchmark::Counter::kIsRate);
}

}  // namespace skald::backend
