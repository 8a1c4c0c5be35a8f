// Replay, recorded noise, script, views.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;

/// Everything the views of a run show.
struct Seen {
  std::vector<std::vector<float>> hidden, logits, probs, predictor_logits, predictor_probs;
  std::vector<std::vector<int32_t>> codes;

  std::function<void(const StepView&)> recorder() {
    const auto copy = []<class T>(std::span<const T> s) { return std::vector<T>(s.begin(), s.end()); };
    return [this, copy](const StepView& v) {
      EXPECT_EQ(v.step, static_cast<int64_t>(hidden.size()));
      hidden.push_back(copy(v.hidden)), logits.push_back(copy(v.logits)), probs.push_back(copy(v.probs));
      predictor_logits.push_back(copy(v.predictor_logits)),
          predictor_probs.push_back(copy(v.predictor_probs));
      codes.push_back(copy(v.codes));
    };
  }
};

SpeechRequest sampled(int32_t max_frames) {
  SpeechRequest r = simple("Hello there", max_frames);
  r.sampling = {};
  return r;
}

TEST(Replay, ComputesWhatTheRunComputed) {
  Engine& engine = tiny("tiny-cv-1b7");
  Seen first, second;
  Diagnosis d;
  d.want_probs = true;
  d.on_step = first.recorder();
  const Outcome run = speak(engine, sampled(12), &d);
  ASSERT_EQ(run.result.frames, 12);
  d.on_step = second.recorder();
  d.replay = run.codes;
  SpeechRequest r = sampled(12);
  r.max_frames.reset(), r.seed = 4321;
  const Outcome replay = speak(engine, r, &d);
  EXPECT_EQ(replay.codes, run.codes);
  EXPECT_EQ(replay.samples, run.samples);
  EXPECT_EQ(replay.result.stop, StopReason::length);
  EXPECT_EQ(second.hidden, first.hidden);
  EXPECT_EQ(second.logits, first.logits);
  EXPECT_EQ(second.probs, first.probs);
  EXPECT_EQ(second.predictor_logits, first.predictor_logits);
  EXPECT_EQ(second.predictor_probs, first.predictor_probs);
}

TEST(Replay, FollowsForeignCodesAndGuardsAreOff) {
  Diagnosis d;
  d.replay.assign(16 * 300, 7);  // more frames than the bound, one code for ever
  SpeechRequest r = sampled(1);
  r.max_frames.reset();
  const Outcome out = speak(tiny("tiny-cv"), r, &d, 50);
  EXPECT_FALSE(out.error);
  EXPECT_EQ(out.codes, d.replay);
  EXPECT_EQ(out.result.stop, StopReason::length);
}

TEST(Replay, IsChecked) {
  Diagnosis d;
  d.replay.assign(16, 0);
  d.replay[3] = 64;
  EXPECT_THAT(error_of([&] { tiny("tiny-cv").start_stream(simple("x"), &d); }).what(),
              HasSubstr("replay: frame 0, group 3 is 64"));
}

TEST(Views, ShapesAndTheLastCall) {
  Engine& engine = tiny("tiny-cv");
  Seen seen;
  Diagnosis d;
  d.on_step = seen.recorder();
  d.script = [](int64_t frame, std::span<int32_t> codes) { return codes[0] = 102, frame == 4; };
  std::vector<float> rows;
  int32_t hidden = 0;
  d.on_prompt = [&](std::span<const float> r, int32_t h) { rows.assign(r.begin(), r.end()), hidden = h; };
  const Outcome out = speak(engine, simple("Hello", 10), &d);
  EXPECT_EQ(out.result.stop, StopReason::eos);
  EXPECT_EQ(hidden, 32);
  EXPECT_EQ(rows.size(), static_cast<size_t>(out.result.prompt_rows) * 32);
  ASSERT_EQ(seen.hidden.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(seen.hidden[i].size(), 32u);
    EXPECT_EQ(seen.logits[i].size(), 1088u);
    EXPECT_TRUE(seen.probs[i].empty()) << "not asked for";
    EXPECT_EQ(seen.codes[i].size(), i < 4 ? 16u : 0u);
    EXPECT_EQ(seen.predictor_logits[i].size(), i < 4 ? 15u * 64 : 0u);
  }
}

TEST(Views, ProbabilitiesAreDistributions) {
  Seen seen;
  Diagnosis d;
  d.want_probs = true;
  d.on_step = seen.recorder();
  speak(tiny("tiny-cv"), sampled(3), &d);
  for (const auto& probs : seen.probs) {
    double sum = 0;
    for (const float p : probs) sum += p;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(Views, ACallbackMayUseTheEngine) {
  Engine& engine = tiny("tiny-endless");
  size_t samples = 0;
  Diagnosis d;
  d.on_step = [&](const StepView& v) { samples += engine.decode(v.codes, DecodeMode::stream).size(); };
  EXPECT_FALSE(speak(engine, simple("Hello", 3), &d).error);
  EXPECT_EQ(samples, 3u * 1920);
}

TEST(Noise, DecidesTheDraws) {
  Engine& engine = tiny("tiny-cv");
  Diagnosis d;
  d.noise.assign(1088 * 4, 1.0f);
  d.predictor_noise.assign(15 * 64 * 4, 1.0f);
  for (size_t f = 0; f < 4; ++f) {
    d.noise[f * 1088 + 10 + f] = 1e-30f;  // p / e is largest here, whatever p is
    for (size_t g = 0; g < 15; ++g) d.predictor_noise[(f * 15 + g) * 64 + g] = 1e-30f;
  }
  SpeechRequest r = sampled(4);
  r.sampling = {.temperature = 20.0f, .top_k = 0, .sub_temperature = 20.0f, .sub_top_k = 0};
  const Outcome out = speak(engine, r, &d);
  ASSERT_FALSE(out.error) << out.error->what();
  for (int32_t f = 0; f < 4; ++f) {
    EXPECT_EQ(out.codes[static_cast<size_t>(f) * 16], 10 + f);
    for (int32_t g = 0; g < 15; ++g) EXPECT_EQ(out.codes[static_cast<size_t>(f * 16 + 1 + g)], g);
  }
}

TEST(Noise, RunningOutIsAnError) {
  Diagnosis d;
  d.noise.assign(1088 * 3, 1.0f);
  d.predictor_noise.assign(15 * 64 * 3, 1.0f);
  const Outcome out = speak(tiny("tiny-endless"), sampled(4), &d, 1);
  ASSERT_TRUE(out.error);
  EXPECT_THAT(out.error->what(), HasSubstr("recorded noise ends after 3 draws"));
  EXPECT_EQ(out.result.frames, 3);
  d.noise.assign(1088 * 4, 1.0f);
  const Outcome predictor = speak(tiny("tiny-endless"), sampled(4), &d, 1);
  ASSERT_TRUE(predictor.error);
  EXPECT_THAT(predictor.error->what(), HasSubstr("predictor noise has no row for frame 3"));
}

TEST(Noise, IsChecked) {
  Engine& engine = tiny("tiny-cv");
  const auto refused = [&](const Diagnosis& d) {
    return error_of([&] { engine.start_stream(sampled(2), &d); });
  };
  Diagnosis d;
  d.noise.assign(1088 * 2, 1.0f);
  EXPECT_THAT(refused(d).what(), HasSubstr("predictor_noise is missing"));
  d.predictor_noise.assign(15 * 64 + 1, 1.0f);
  EXPECT_THAT(refused(d).what(), HasSubstr("not a multiple of 960"));
  d.predictor_noise.assign(15 * 64, 1.0f);
  d.noise[5] = 0;
  EXPECT_THAT(refused(d).what(), HasSubstr("number 5 is 0"));
}

}  // namespace
}  // namespace skald::test
