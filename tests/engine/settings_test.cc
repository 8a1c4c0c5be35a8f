// Sampler settings: precedence, ranges, greedy; frame limits.
#include "engine/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace skald::engine {
namespace {

const model::GenerationConfig kModel = {.temperature = 0.7f,
                                        .top_p = 0.9f,
                                        .repetition_penalty = 1.2f,
                                        .subtalker_temperature = 0.6f,
                                        .subtalker_top_p = 0.8f,
                                        .top_k = 33,
                                        .subtalker_top_k = 44};

TEST(Settings, ComeFromTheModelWhenAbsent) {
  const backend::SlotSettings s = resolve_sampling({}, kModel);
  EXPECT_EQ(s.talker.temperature, 0.7f);
  EXPECT_EQ(s.talker.top_p, 0.9f);
  EXPECT_EQ(s.talker.repetition_penalty, 1.2f);
  EXPECT_EQ(s.talker.top_k, 33);
  EXPECT_EQ(s.talker.min_new_tokens, 2);
  EXPECT_EQ(s.talker.greedy, 0);
  EXPECT_EQ(s.predictor.temperature, 0.6f);
  EXPECT_EQ(s.predictor.top_p, 0.8f);
  EXPECT_EQ(s.predictor.top_k, 44);
  EXPECT_EQ(s.predictor.greedy, 0);
}

TEST(Settings, OfTheRequestWin) {
  const backend::SlotSettings s = resolve_sampling({.temperature = 1.5f,
                                                    .top_p = 0.5f,
                                                    .repetition_penalty = 1.0f,
                                                    .top_k = 0,
                                                    .min_new_tokens = 0,
                                                    .sub_temperature = 2.0f,
                                                    .sub_top_p = 1.0f,
                                                    .sub_top_k = 7},
                                                   kModel);
  EXPECT_EQ(s.talker.temperature, 1.5f);
  EXPECT_EQ(s.talker.top_p, 0.5f);
  EXPECT_EQ(s.talker.repetition_penalty, 1.0f);
  EXPECT_EQ(s.talker.top_k, 0);
  EXPECT_EQ(s.talker.min_new_tokens, 0);
  EXPECT_EQ(s.predictor.temperature, 2.0f);
  EXPECT_EQ(s.predictor.top_p, 1.0f);
  EXPECT_EQ(s.predictor.top_k, 7);
}

TEST(Settings, GreedyOfEitherSide) {
  const auto greedy = [](Sampling s, model::GenerationConfig d = {}) {
    const backend::SlotSettings r = resolve_sampling(s, d);
    return std::pair(r.talker.greedy, r.predictor.greedy);
  };
  EXPECT_EQ(greedy({}), std::pair(0, 0));
  EXPECT_EQ(greedy({.greedy = true}), std::pair(1, 1));
  EXPECT_EQ(greedy({.sub_greedy = true}), std::pair(0, 1));
  EXPECT_EQ(greedy({.temperature = 0.0f}), std::pair(1, 0));
  EXPECT_EQ(greedy({.sub_temperature = 0.0f}), std::pair(0, 1));
  EXPECT_EQ(greedy({}, {.do_sample = false}), std::pair(1, 0));
  EXPECT_EQ(greedy({}, {.subtalker_dosample = false}), std::pair(0, 1));
}

TEST(Settings, OutOfRangeIsRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const std::pair<Sampling, const char*> bad[] = {
      {{.temperature = -0.1f}, "temperature is -0.1"},
      {{.temperature = nan}, "temperature is nan"},
      {{.temperature = infinity}, "temperature is inf"},
      {{.temperature = 1e-39f}, "temperature is 1e-39"},
      {{.top_p = 0.0f}, "top_p is 0"},
      {{.top_p = 1.01f}, "top_p is 1.01"},
      {{.top_p = nan}, "top_p is nan"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty is 0"},
      {{.repetition_penalty = -1.0f}, "repetition_penalty is -1"},
      {{.repetition_penalty = 1e-7f}, "repetition_penalty is 1e-07"},
      {{.repetition_penalty = 2e6f}, "repetition_penalty is 2000000"},
      {{.top_k = -1}, "top_k is -1"},
      {{.min_new_tokens = -1}, "min_new_tokens is -1"},
      {{.sub_temperature = -1.0f}, "sub_temperature is -1"},
      {{.sub_temperature = 1e-7f}, "sub_temperature is 1e-07"},
      {{.sub_top_p = 2.0f}, "sub_top_p is 2"},
      {{.sub_top_k = -5}, "sub_top_k is -5"},
  };
  for (const auto& [sampling, what] : bad) {
    try {
      resolve_sampling(sampling, kModel);
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(std::string(e.what()).starts_with(what)) << e.what();
    }
  }
}

TEST(FrameLimit, SmallerOfBoth) {
  EXPECT_EQ(caller_frame_limit({}), std::nullopt);
  EXPECT_EQ(caller_frame_limit({.max_frames = 1}), 1);
  EXPECT_EQ(caller_frame_limit({.max_new_tokens = 2}), 1);
  EXPECT_EQ(caller_frame_limit({.max_frames = 10, .max_new_tokens = 64}), 10);
  EXPECT_EQ(caller_frame_limit({.max_frames = 100, .max_new_tokens = 64}), 63);
  EXPECT_THROW(caller_frame_limit({.max_frames = 0}), Error);
  EXPECT_THROW(caller_frame_limit({.max_new_tokens = 1}), Error);
  EXPECT_THROW(caller_frame_limit({.max_frames = 5, .max_new_tokens = -3}), Error);
}

TEST(FrameBound, GrowsWithTheTextWithoutOverflow) {
  EXPECT_EQ(text_frame_bound(0), 240);
  EXPECT_EQ(text_frame_bound(20), 240);
  EXPECT_EQ(text_frame_bound(21), 252);
  EXPECT_EQ(text_frame_bound(1000), 12000);
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(text_frame_bound(178956970), 2147483640);
  EXPECT_EQ(text_frame_bound(178956971), most);
  EXPECT_EQ(text_frame_bound(std::numeric_limits<uint64_t>::max()), most);
}

}  // namespace
}  // namespace skald::engine
