// A library built with -ffast-math somewhere in the process must not change a code or a sample, whoever opens
// the engine and whichever thread speaks.
#include <gtest/gtest.h>

#include <algorithm>

#include "../unusual_floats.h"
#include "engine/scheduler.h"
#include "support.h"

namespace skald::test {
namespace {

EngineOptions options_of(const std::string& weights) {
  EngineOptions o;
  o.threads = 2, o.slots = 2, o.weights = weights;
  return o;
}

SpeechRequest sampled() {
  SpeechRequest r = simple("Hello there", 12);
  r.sampling = {};
  r.seed = 5;
  return r;
}

/// What an engine does that anybody could hear or see.
struct Work {
  Outcome spoken, pieces;
  std::vector<float> decoded;
  std::vector<int32_t> encoded;
};

std::vector<int32_t> fixed_codes() {
  std::vector<int32_t> codes(20 * 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int32_t>(i * 2654435761u >> 8 & 63);
  return codes;
}

Work work_of(Engine& engine, const Diagnosis* diagnosis = nullptr) {
  Work w;
  w.spoken = speak(engine, sampled(), diagnosis, 3);
  w.pieces = speak_pieces(engine, sampled(), {"Hel", "lo there"}, 3);
  w.decoded = engine.decode(fixed_codes(), DecodeMode::stream);
  size_t left = 24000;
  w.encoded = engine.encode([&](std::span<float> to) {
    const size_t n = std::min(left, to.size());
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>((left - i) % 97) * 0x1p-8f - 0.1875f;
    left -= n;
    return n;
  });
  return w;
}

void expect_equal(const Work& a, const Work& b) {
  EXPECT_FALSE(a.spoken.codes.empty());
  EXPECT_EQ(a.spoken.codes, b.spoken.codes);
  EXPECT_EQ(a.spoken.samples, b.spoken.samples);
  EXPECT_EQ(a.pieces.codes, b.pieces.codes);
  EXPECT_EQ(a.pieces.samples, b.pieces.samples);
  EXPECT_EQ(a.decoded, b.decoded);
  EXPECT_FALSE(a.encoded.empty());
  EXPECT_EQ(a.encoded, b.encoded);
}

class AnyFloats : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Weights, AnyFloats, ::testing::Values("auto", "int8"),
                         [](const auto& p) { return std::string(p.param); });

/// int8 rounds while the engine is opened.
TEST_P(AnyFloats, DoNotMatterToAnEngine) {
  const Work right = work_of(*Engine::open(model_dir("tiny-cv"), options_of(GetParam())));
  Work here;
  {
    const UnusualFloats unusual;
    const auto engine = Engine::open(model_dir("tiny-cv"), options_of(GetParam()));
    EXPECT_TRUE(UnusualFloats::in_force()) << "opened";
    here = work_of(*engine);
    EXPECT_TRUE(UnusualFloats::in_force()) << "spoken";
  }
  expect_equal(right, here);
}

TEST(Floats, OfWhoeverStartsASchedulerDoNotMatter) {
  const Outcome right = speak(*Engine::open(model_dir("tiny-cv"), options_of("auto")), sampled());
  Outcome here;
  {
    const UnusualFloats unusual;
    engine::Scheduler scheduler(engine::load_core(model_dir("tiny-cv"), options_of("auto")), {});
    const auto client = scheduler.client(false);
    here = speak(*client, sampled());
    EXPECT_TRUE(UnusualFloats::in_force());
  }
  EXPECT_FALSE(right.codes.empty());
  EXPECT_EQ(right.codes, here.codes);
  EXPECT_EQ(right.samples, here.samples);
}

TEST(Floats, WhatIsCalledBackHasTheDefault) {
  const auto engine = Engine::open(model_dir("tiny-cv"), options_of("auto"));
  int steps = 0, parts = 0, wrong = 0;
  Diagnosis d;
  d.on_step = [&](const StepView&) { ++steps, wrong += !default_floats(); };
  const UnusualFloats unusual;
  speak(*engine, sampled(), &d);
  engine->decode_to(fixed_codes(), DecodeMode::stream,
                    [&](std::span<const float>) { ++parts, wrong += !default_floats(); });
  EXPECT_TRUE(UnusualFloats::in_force());
  EXPECT_EQ(steps, 12);
  EXPECT_GT(parts, 0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace skald::test
