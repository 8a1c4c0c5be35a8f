// Every kernel with the race check: no two lanes touch the same byte, one of them writing, without something
// that orders them. Also: a second run on the same memory gives the same bits, whatever the order of lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

using Body = std::function<void(Rig&, Ops&, const Lanes&)>;

Buffer input(Rig& rig, const Lanes& l, int width) {
  return rig.buffer(l.total(), width, rig.normal(int64_t{l.total()} * width));
}
Buffer output(Rig& rig, const Lanes& l, int width) {
  return rig.buffer(l.total(), width, std::vector<float>(static_cast<size_t>(l.total() * width)));
}
Weight vector(Rig& rig, int n) { return rig.load(WeightRole::vector, {n}).weight; }

void linear(Rig& rig, Ops& ops, const Lanes& l) {
  const Buffer out = output(rig, l, 70);
  ops.linear({.x = input(rig, l, 300),
              .norm = {Norm::layer, vector(rig, 300), vector(rig, 300), 1e-5f},
              .weight = rig.load(WeightRole::matrix, {70, 300}).weight,
              .bias = vector(rig, 70),
              .activation = Activation::gelu_erf,
              .residual = out,
              .scale = vector(rig, 70),
              .out = out,
              .lanes = l});
}

void norm_alone(Rig& rig, Ops& ops, const Lanes& l) {
  const Buffer x = input(rig, l, 300);
  ops.linear({.x = x, .norm = {Norm::rms, vector(rig, 300), {}, 1e-5f}, .out = x, .lanes = l});
}

void gated_pair(Rig& rig, Ops& ops, const Lanes& l) {
  ops.gated_pair({.x = input(rig, l, 300),
                  .norm = {Norm::rms, vector(rig, 300), {}, 1e-5f},
                  .gate = rig.load(WeightRole::matrix, {40, 300}).weight,
                  .up = rig.load(WeightRole::matrix, {40, 300}).weight,
                  .out = output(rig, l, 40),
                  .lanes = l});
}

void attention(Rig& rig, Ops& ops, const Lanes& l) {
  const KvCache cache{rig.buffer(3 * 400, 32, rig.normal(3 * 400 * 32)),
                      rig.buffer(3 * 400, 32, rig.normal(3 * 400 * 32)), 400, false};
  const Buffer rope = output(rig, l, 16), q = output(rig, l, 64);
  ops.rope_angles({.theta = 10000, .head_dim = 16, .out = rope, .lanes = l});
  ops.qkv_rope({.x = input(rig, l, 50),
                .norm = {Norm::rms, vector(rig, 50), {}, 1e-5f},
                .wq = rig.load(WeightRole::matrix, {64, 50}).weight,
                .wk = rig.load(WeightRole::matrix, {32, 50}).weight,
                .wv = rig.load(WeightRole::matrix, {32, 50}).weight,
                .q_norm = vector(rig, 16),
                .k_norm = vector(rig, 16),
                .heads = 4,
                .kv_heads = 2,
                .head_dim = 16,
                .rope = rope,
                .q = q,
                .cache = cache,
                .lanes = l});
  ops.attention({.q = q,
                 .cache = cache,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 16,
                 .scale = 0.25f,
                 .out = output(rig, l, 64),
                 .lanes = l});
}

void row_ops(Rig& rig, Ops& ops, const Lanes& l) {
  const Buffer x = input(rig, l, 270);
  ops.gather_sum({.tables = {rig.load(WeightRole::table, {4, 270}).weight},
                  .ids = rig.ints(l.total(), 1, std::vector<int32_t>(static_cast<size_t>(l.total()), 3)),
                  .add = x,
                  .out = x,
                  .lanes = l});
  ops.store_rows(
      {.x = x, .store = rig.buffer(3 * 400, 270, rig.normal(3 * 400 * 270)), .capacity = 400, .lanes = l});
  ops.copy({.rows = Copy::last, .x = x, .out = output(rig, l, 270), .lanes = l});
  ops.advance({.counter = rig.ints(3, 1, {0, 0, 0}), .lanes = l});
}

void convolutions(Rig& rig, Ops& ops, const Lanes& l) {
  const Buffer x = input(rig, l, 40);
  const Snake snake{vector(rig, 40), vector(rig, 40)};
  ops.conv({.x = x,
            .snake = snake,
            .weight = rig.load(WeightRole::convolution, {40, 40, 3}).weight,
            .kernel = 3,
            .dilation = 2,
            .state = rig.buffer(3 * 4, 40, rig.normal(3 * 4 * 40)),
            .residual = x,
            .out = x,
            .lanes = l});
  ops.depthwise({.x = x,
                 .weight = rig.load(WeightRole::depthwise, {40, 1, 4}).weight,
                 .kernel = 4,
                 .state = rig.buffer(3 * 3, 40, rig.normal(3 * 3 * 40)),
                 .out = output(rig, l, 40),
                 .lanes = l});
  ops.conv_transposed(
      {.x = x,
       .snake = snake,
       .weight = rig.load(WeightRole::transposed_convolution, {40, 20, 4}).weight,
       .kernel = 4,
       .stride = 2,
       .state = rig.buffer(3, 40, rig.normal(3 * 40)),
       .out = rig.buffer(2 * l.total(), 20, std::vector<float>(static_cast<size_t>(40 * l.total()))),
       .lanes = l});
}

void frame(Rig& rig, Ops& ops, const Lanes& l) {
  constexpr int kSlots = 3, kGroups = 3, kVocabulary = 300;
  std::vector<SlotSettings> settings(kSlots);
  for (SlotSettings& s : settings) s.max_frames = 10, s.want_probs = 1, s.talker.top_p = 0.9f;
  SlotArrays a{.settings = rig.bytes(kSlots, sizeof(SlotSettings),
                                     std::vector<uint8_t>(kSlots * sizeof(SlotSettings))),
               .status = l.gate,
               .position = l.start,
               .step = rig.ints(kSlots, 1, {0, 0, 0}),
               .sampled = rig.ints(kSlots, 1, {0, 0, 0}),
               .frames = rig.ints(kSlots, 1, {0, 0, 0}),
               .codes = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups)),
               .forced = rig.ints(kSlots, kGroups, std::vector<int32_t>(kSlots * kGroups, -1)),
               .seen = rig.bytes(kSlots, kVocabulary, std::vector<uint8_t>(kSlots * kVocabulary)),
               .ring = rig.ints(kSlots * 4, kGroups, std::vector<int32_t>(kSlots * 4 * kGroups)),
               .cache_capacity = 400,
               .ring_frames = 4,
               .groups = kGroups};
  rig.device().write(a.settings, std::as_bytes(std::span(settings)));
  ops.sample({.group = 0,
              .logits = input(rig, l, kVocabulary),
              .probs = output(rig, l, kVocabulary),
              .codes = 256,
              .stop_id = 299,
              .slots = a,
              .lanes = l});
  ops.publish_frame({.slots = a, .lanes = l});
}

/// Calls that together use every kernel, those of a frame with one row a lane. Each makes its own tensors.
std::vector<std::pair<std::string, Body>> calls(int rows) {
  std::vector<std::pair<std::string, Body>> all = {
      {"linear", linear},       {"norm alone", norm_alone}, {"gated_pair", gated_pair},
      {"attention", attention}, {"rows", row_ops},          {"convolutions", convolutions}};
  if (rows == 1) all.emplace_back("frame", frame);
  return all;
}

/// Runs a call twice on one device and returns everything that its ops wrote.
std::vector<float> run_twice(const std::string& device, const std::string& weights, int rows,
                             const Body& body) {
  Rig rig(device, 1, 3, weights);
  auto& kernels = static_cast<gpu::test::KernelDevice&>(rig.device());
  kernels.listen(3, 4, 3);
  const LaneCase c{"", 3, rows, 1, 3, {2, -1, 0}, {}, {290, 0, 17}, {kRunning, kRunning, kRunning}};
  const Lanes lanes = rig.lanes(c);
  const Program p = rig.device().record("twice", [&](Ops& ops) { body(rig, ops, lanes); });
  rig.device().run(p);
  rig.device().run(p);
  std::vector<float> all;
  for (const OpRecord& op : rig.device().ops(p))
    for (const Buffer& b : op.outputs) {
      std::vector<std::byte> bytes(static_cast<size_t>(b.rows) * static_cast<size_t>(b.width) *
                                   dtype_size(b.dtype));
      rig.device().read(b, bytes);
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        float value;
        std::memcpy(&value, &bytes[i], 4);
        all.push_back(value);
      }
    }
  return all;
}

TEST(Kernels, NoRaces) {
  for (const char* weights : {"f32", "bf16", "int8"})
    for (const int rows : {1, 2, 5, 14})
      for (const auto& [name, body] : calls(rows)) {
        if (weights != std::string("f32") && name != "linear" && name != "gated_pair") continue;
        EXPECT_NO_THROW(run_twice("race", weights, rows, body))
            << name << ", " << weights << ", " << rows << " rows";
      }
}

TEST(Kernels, OrderOfLanesAndWidthOfWavesDoNotShow) {
  for (const int rows : {1, 5})
    for (const auto& [name, body] : calls(rows)) {
      const std::vector<float> want = run_twice("simt32", "bf16", rows, body);
      EXPECT_GT(want.size(), 0u);
      for (const char* device : {"simt64", "simt32_order"})
        expect_same_bits(want, run_twice(device, "bf16", rows, body), name + ", " + device);
    }
}

}  // namespace
}  // namespace skald::backend::test
