// CPU kernels at the shapes of the published models: products of one row and of a prompt, convolutions of the
// codec, attention. Each row prints GB/s and GFLOP/s; `read_bandwidth` is what the machine can read, in the
// same run, and `sgemm` what single-thread OpenBLAS makes of a convolution's matrix product.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include "backend/cpu/memory.h"
#include "base/pool.h"
#include "bench_device.h"

extern "C" void openblas_set_num_threads(int);

namespace skald::backend {
namespace {

/// Sums 1 GB in large pages, every thread its own part in four streams.
void read_bandwidth(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  constexpr int64_t kFloats = int64_t{256} << 20;
  static const cpu::Mapping memory("yardstick", kFloats * sizeof(float), true);
  std::fill_n(memory.as<float>(), kFloats, 1.0f);
  Pool pool(threads);
  std::vector<float> sums(static_cast<size_t>(threads) * 16);
  for (auto _ : state)
    pool.run(threads, [&](int task, int) {
      const int64_t n = kFloats / threads / 4;
      const float* from = memory.as<float>() + task * 4 * n;
      typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
      Vector sum[4] = {};
      for (int64_t i = 0; i + 16 <= n; i += 16)
        for (int s = 0; s < 4; ++s) sum[s] += *reinterpret_cast<const Vector*>(from + s * n + i);
      sum[0] += sum[1] + sum[2] + sum[3];
      benchmark::DoNotOptimize(sums[static_cast<size_t>(task) * 16] = sum[0][0]);
    });
  set_rates(state, 4.0 * kFloats, kFloats);
}
BENCHMARK(read_bandwidth)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

struct Mode {
  const char *weights, *compute, *label;
};
constexpr Mode kModes[] = {{"f32", "exact", "f32"},
                           {"bf16", "exact", "bf16"},
                           {"int8", "exact", "int8"},
                           {"bf16", "fast", "fast"},
                           {"int8", "fast", "fast int8"}};

/// Bytes of one number of a convolution's weight.
double held_bytes(const Mode& mode) { return cpu_matrix_bytes("f32", false, mode.compute); }

/// Many different matrices in turn, 1 GB of weights in all, so that none is still in a cache.
void linear(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(0)), outputs = static_cast<int>(state.range(1)),
             inputs = static_cast<int>(state.range(2));
  const Mode& mode = kModes[state.range(4)];
  state.SetLabel(mode.label);
  Bench b(static_cast<int>(state.range(3)), mode.weights, mode.compute);
  const double bytes = cpu_matrix_bytes(mode.weights, false, mode.compute) * outputs * inputs;
  const int count = static_cast<int>(1e9 / bytes);
  const Buffer x = b.buffer(rows, inputs), out = b.buffer(rows, outputs);
  const Weight norm = b.load(WeightRole::vector, {inputs});
  const Lanes lanes = b.lanes(rows);
  const Program program = b.device->record("linear", [&](Ops& ops) {
    for (int i = 0; i < count; ++i)
      ops.linear({.x = x,
                  .norm = {Norm::rms, norm, {}, 1e-6f},
                  .weight = b.load(WeightRole::matrix, {outputs, inputs}),
                  .out = out,
                  .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, bytes * count, 2.0 * rows * outputs * inputs * count);
}
void linear_shapes(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, kThreads})
    for (const int rows : {1, 32})
      for (const auto& [outputs, inputs] : {std::pair{1024, 3072}, {2048, 1024}, {1024, 2048}, {3072, 1024}})
        for (const int mode : {0, 1, 2, 3, 4}) bench->Args({rows, outputs, inputs, threads, mode});
}
BENCHMARK(linear)
    ->Apply(linear_shapes)
    ->ArgNames({"rows", "out", "in", "threads", "mode"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// Packing of one matrix as it comes from a checkpoint.
void load(benchmark::State& state) {
  constexpr int kOutputs = 3072, kInputs = 1024;
  const std::vector<uint16_t> source(kOutputs * kInputs, 0x3F80);
  const Mode& mode = kModes[state.range(1)];
  state.SetLabel(mode.label);
  Bench b(static_cast<int>(state.range(0)), mode.weights, mode.compute);
  for (auto _ : state)
    b.device->load(WeightRole::matrix, {.name = "w",
                                        .dtype = Dtype::bf16,
                                        .shape = {kOutputs, kInputs},
                                        .data = std::as_bytes(std::span(source))});
  set_rates(state, 2.0 * kOutputs * kInputs, 0);
}
BENCHMARK(load)
    ->ArgsProduct({{1, kThreads}, {0, 1, 2, 3, 4}})
    ->ArgNames({"threads", "mode"})
    ->Iterations(20)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void gated_pair(benchmark::State& state) {
  constexpr int kInputs = 1024, kOutputs = 3072, kCount = 40;
  Bench b(static_cast<int>(state.range(0)));
  const Buffer x = b.buffer(1, kInputs), out = b.buffer(1, kOutputs);
  const Weight norm = b.load(WeightRole::vector, {kInputs});
  const Lanes lanes = b.lanes(1);
  const Program program = b.device->record("gated_pair", [&](Ops& ops) {
    for (int i = 0; i < kCount; ++i)
      ops.gated_pair({.x = x,
                      .norm = {Norm::rms, norm, {}, 1e-6f},
                      .gate = b.load(WeightRole::matrix, {kOutputs, kInputs}),
                      .up = b.load(WeightRole::matrix, {kOutputs, kInputs}),
                      .out = out,
                      .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, 8.0 * kInputs * kOutputs * kCount, 4.0 * kInputs * kOutputs * kCount);
}
BENCHMARK(gated_pair)->Arg(1)->Arg(kThreads)->UseRealTime()->Unit(benchmark::kMillisecond);

/// One convolution of the codec over `rows` time steps, snake included.
void conv(benchmark::State& state) {
  const auto channels = static_cast<int>(state.range(0)), outputs = static_cast<int>(state.range(1)),
             kernel = static_cast<int>(state.range(2)), dilation = static_cast<int>(state.range(3)),
             rows = static_cast<int>(state.range(4));
  const Mode& mode = kModes[state.range(6) == 0 ? 0 : 3];
  state.SetLabel(mode.label);
  Bench b(static_cast<int>(state.range(5)), mode.weights, mode.compute);
  const Snake snake{b.load(WeightRole::vector, {channels}), b.load(WeightRole::vector, {channels})};
  const Buffer x = b.buffer(rows, channels), out = b.buffer(rows, outputs);
  const int history = (kernel - 1) * dilation;
  const Buffer carried = history > 0 ? b.buffer(history, channels) : Buffer{};
  const Weight w = b.load(WeightRole::convolution, {outputs, channels, kernel});
  const Lanes lanes = b.lanes(rows);
  const Program program = b.device->record("conv", [&](Ops& ops) {
    ops.conv({.x = x,
              .snake = snake,
              .weight = w,
              .kernel = kernel,
              .dilation = dilation,
              .state = carried,
              .out = out,
              .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, held_bytes(mode) * channels * outputs * kernel, 2.0 * rows * channels * outputs * kernel);
}
// Four frames a call.
void conv_shapes(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, kThreads})
    for (const auto& [channels, rows] : {std::pair{768, 128}, {384, 640}, {192, 2560}, {96, 7680}}) {
      for (const int fast : {0, 1}) {
        bench->Args({channels, channels, 7, 9, rows, threads, fast});
        bench->Args({channels, channels, 1, 1, rows, threads, fast});
      }
    }
  for (const int fast : {0, 1}) {
    bench->Args({96, 1, 7, 1, 7680, 1, fast});
    bench->Args({1024, 1536, 7, 1, 16, 1, fast});
  }
}
BENCHMARK(conv)
    ->Apply(conv_shapes)
    ->ArgNames({"in", "out", "kernel", "dilation", "rows", "threads", "fast"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void conv_transposed(benchmark::State& state) {
  const auto channels = static_cast<int>(state.range(0)), stride = static_cast<int>(state.range(1)),
             rows = static_cast<int>(state.range(2)), kernel = 2 * stride;
  const Mode& mode = kModes[state.range(4) == 0 ? 0 : 3];
  state.SetLabel(mode.label);
  Bench b(static_cast<int>(state.range(3)), mode.weights, mode.compute);
  const Snake snake{b.load(WeightRole::vector, {channels}), b.load(WeightRole::vector, {channels})};
  const Buffer x = b.buffer(rows, channels), out = b.buffer(int64_t{rows} * stride, channels / 2);
  const Weight w = b.load(WeightRole::transposed_convolution, {channels, channels / 2, kernel});
  const Buffer carried = b.buffer(1, channels);
  const Lanes lanes = b.lanes(rows);
  const Program program = b.device->record("conv_transposed", [&](Ops& ops) {
    ops.conv_transposed({.x = x,
                         .snake = snake,
                         .weight = w,
                         .kernel = kernel,
                         .stride = stride,
                         .state = carried,
                         .out = out,
                         .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, held_bytes(mode) / 2 * channels * channels * kernel,
            1.0 * rows * channels * channels * kernel);
}
BENCHMARK(conv_transposed)
    ->ArgsProduct({{1536}, {8}, {16}, {1}, {0, 1}})
    ->ArgsProduct({{768}, {5}, {128}, {1}, {0, 1}})
    ->ArgsProduct({{384}, {4}, {640}, {1}, {0, 1}})
    ->ArgsProduct({{192}, {3}, {2560}, {1}, {0, 1}})
    ->ArgNames({"in", "stride", "rows", "threads", "fast"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

/// The matrix product of the same convolution, [rows, in * kernel] x [in * kernel, out], by OpenBLAS on one
/// thread.
void sgemm(benchmark::State& state) {
  openblas_set_num_threads(1);
  const auto outputs = static_cast<int>(state.range(1)),
             inputs = static_cast<int>(state.range(0) * state.range(2)),
             rows = static_cast<int>(state.range(3));
  const std::vector<float> a = values(int64_t{rows} * inputs, 1),
                           w = values(int64_t{inputs} * outputs, 0.05f);
  std::vector<float> c(static_cast<size_t>(rows) * static_cast<size_t>(outputs));
  for (auto _ : state) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inputs, 1, a.data(), inputs, w.data(),
                inputs, 0, c.data(), outputs);
    benchmark::ClobberMemory();
  }
  set_rates(state, 4.0 * inputs * outputs, 2.0 * rows * inputs * outputs);
}
void sgemm_shapes(benchmark::internal::Benchmark* bench) {
  for (const auto& [channels, rows] : {std::pair{768, 128}, {384, 640}, {192, 2560}, {96, 7680}})
    for (const int kernel : {7, 1}) bench->Args({channels, channels, kernel, rows});
  bench->Args({1024, 1536, 7, 16});
  bench->Args({1024, 3072, 1, 32});
}
BENCHMARK(sgemm)
    ->Apply(sgemm_shapes)
    ->ArgNames({"in", "out", "kernel", "rows"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

/// One row at a position, 16 heads over 8 kv heads of 128; layers in turn so that the cache comes from
/// memory.
void attention(benchmark::State& state) {
  constexpr int kHeads = 16, kKvHeads = 8, kDim = 128, kLayers = 28;
  const auto position = static_cast<int>(state.range(0));
  Bench b(static_cast<int>(state.range(1)));
  const Buffer q = b.buffer(1, kHeads * kDim), out = b.buffer(1, kHeads * kDim);
  const Lanes lanes = b.lanes(1, position);
  const Program program = b.device->record("attention", [&](Ops& ops) {
    for (int i = 0; i < kLayers; ++i) {
      const KvCache cache{b.buffer(position + 1, kKvHeads * kDim), b.buffer(position + 1, kKvHeads * kDim),
                          position + 1, false};
      ops.attention({.q = q,
                     .cache = cache,
                     .heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_dim = kDim,
                     .scale = 0.088f,
                     .out = out,
                     .lanes = lanes});
    }
  });
  for (auto _ : state) b.device->run(program);
  const double bytes = 8.0 * (position + 1) * kKvHeads * kDim * kLayers;
  set_rates(state, bytes, bytes);
}
BENCHMARK(attention)
    ->Args({15, 1})
    ->Args({127, 1})
    ->Args({1023, 1})
    ->Args({1023, kThreads})
    ->ArgNames({"position", "threads"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace skald::backend

BENCHMARK_MAIN();
