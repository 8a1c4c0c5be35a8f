// CPU operations beside the large products, at the shapes of the published models: norms, tables, rotation
// and cache, the draw, the depthwise convolution.
#include <cstring>

#include "bench_device.h"

namespace skald::backend {
namespace {

constexpr int kWidth = 1024, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kCodes = 2048, kGroups = 16;

/// A norm alone.
void norm(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(0));
  Bench b(1);
  const Buffer x = b.buffer(rows, kWidth), out = b.buffer(rows, kWidth);
  const Weight weight = b.load(WeightRole::vector, {kWidth});
  const Lanes lanes = b.lanes(rows);
  const Program program = b.device->record("norm", [&](Ops& ops) {
    ops.linear({.x = x, .norm = {Norm::rms, weight, {}, 1e-6f}, .out = out, .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, 4.0 * kWidth, 4.0 * rows * kWidth);
}
BENCHMARK(norm)->Arg(1)->Arg(32)->ArgName("rows");

/// A frame's 16 embeddings and the next text row.
void gather_sum(benchmark::State& state) {
  Bench b(1);
  GatherSum call{.ids = b.numbers(1, kGroups, 77),
                 .add = b.buffer(1, kWidth),
                 .out = b.buffer(1, kWidth),
                 .lanes = b.lanes(1)};
  for (int g = 0; g < kGroups; ++g) call.tables.push_back(b.load(WeightRole::table, {kCodes, kWidth}));
  const Program program = b.device->record("gather_sum", [&](Ops& ops) { ops.gather_sum(call); });
  for (auto _ : state) b.device->run(program);
  set_rates(state, 4.0 * kGroups * kWidth, 1.0 * kGroups * kWidth);
}
BENCHMARK(gather_sum);

void rope_angles(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(0));
  Bench b(1);
  const Buffer out = b.buffer(rows, kHeadDim);
  const Lanes lanes = b.lanes(rows, 300);
  const Program program = b.device->record("rope_angles", [&](Ops& ops) {
    ops.rope_angles({.theta = 1e6f, .head_dim = kHeadDim, .out = out, .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
}
BENCHMARK(rope_angles)->Arg(1)->Arg(32)->ArgName("rows");

/// Norm, three products, norms of the heads, rotation, cache. Layers in turn, so that weights come from
/// memory.
void qkv_rope(benchmark::State& state) {
  constexpr int kLayers = 28, kPosition = 300;
  const auto rows = static_cast<int>(state.range(0));
  Bench b(static_cast<int>(state.range(1)));
  const Buffer x = b.buffer(rows, kWidth), q = b.buffer(rows, kHeads * kHeadDim),
               rope = b.buffer(rows, kHeadDim);
  const Weight norm = b.load(WeightRole::vector, {kWidth}),
               head_norm = b.load(WeightRole::vector, {kHeadDim});
  const Lanes lanes = b.lanes(rows, kPosition);
  const auto matrix = [&](int heads) { return b.load(WeightRole::matrix, {heads * kHeadDim, kWidth}); };
  const Program program = b.device->record("qkv_rope", [&](Ops& ops) {
    for (int i = 0; i < kLayers; ++i) {
      const int capacity = kPosition + rows;
      const KvCache cache{b.buffer(capacity, kKvHeads * kHeadDim), b.buffer(capacity, kKvHeads * kHeadDim),
                          capacity, false};
      ops.qkv_rope({.x = x,
                    .norm = {Norm::rms, norm, {}, 1e-6f},
                    .wq = matrix(kHeads),
                    .wk = matrix(kKvHeads),
                    .wv = matrix(kKvHeads),
                    .q_norm = head_norm,
                    .k_norm = head_norm,
                    .heads = kHeads,
                    .kv_heads = kKvHeads,
                    .head_dim = kHeadDim,
                    .rope = rope,
                    .q = q,
                    .cache = cache,
                    .lanes = lanes});
    }
  });
  for (auto _ : state) b.device->run(program);
  const double weights = 1.0 * kLayers * (kHeads + 2 * kKvHeads) * kHeadDim * kWidth;
  set_rates(state, 4 * weights, 2 * weights * rows);
}
BENCHMARK(qkv_rope)
    ->ArgsProduct({{1, 32}, {1, kThreads}})
    ->ArgNames({"rows", "threads"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// One draw of a predictor head: temperature 0.9, top-k 50, and top-p if asked for.
void sample(benchmark::State& state) {
  Bench b(1);
  SlotSettings settings;
  settings.predictor.temperature = 0.9f, settings.predictor.top_k = 50;
  settings.predictor.top_p = state.range(0) == 0 ? 1.0f : 0.8f;
  const Buffer bytes = b.device->allocate("settings", Dtype::u8, 1, sizeof settings);
  b.device->write(bytes, std::as_bytes(std::span(&settings, 1)));
  const SlotArrays slots{.settings = bytes,
                         .status = b.numbers(1, 1, kRunning),
                         .position = b.numbers(1, 1, 0),
                         .step = b.numbers(1, 1, 0),
                         .sampled = b.numbers(1, 1, 1),
                         .frames = b.numbers(1, 1, 0),
                         .codes = b.numbers(1, kGroups, 0),
                         .forced = b.numbers(1, kGroups, -1),
                         .groups = kGroups};
  const Buffer logits = b.buffer(1, kCodes);
  const Lanes lanes = b.lanes(1);
  const Program program = b.device->record("sample", [&](Ops& ops) {
    ops.sample({.group = 1, .logits = logits, .codes = kCodes, .slots = slots, .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
}
BENCHMARK(sample)->Arg(0)->Arg(1)->ArgName("top_p");

/// The codec's depthwise convolution, four frames of 25 Hz rows.
void depthwise(benchmark::State& state) {
  constexpr int kKernel = 7, kRows = 16;
  Bench b(1);
  const Buffer x = b.buffer(kRows, kWidth), out = b.buffer(kRows, kWidth),
               carried = b.buffer(kKernel - 1, kWidth);
  const Weight weight = b.load(WeightRole::depthwise, {kWidth, 1, kKernel});
  const Lanes lanes = b.lanes(kRows);
  const Program program = b.device->record("depthwise", [&](Ops& ops) {
    ops.depthwise(
        {.x = x, .weight = weight, .kernel = kKernel, .state = carried, .out = out, .lanes = lanes});
  });
  for (auto _ : state) b.device->run(program);
  set_rates(state, 4.0 * kKernel * kWidth, 2.0 * kRows * kKernel * kWidth);
}
BENCHMARK(depthwise);

}  // namespace
}  // namespace skald::backend
