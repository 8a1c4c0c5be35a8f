// compute "fast": what rounding may change and what it must not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "engine/codec_run.h"
#include "support.h"

namespace skald::test {
namespace {

EngineOptions fast_options(const std::string& weights, int32_t threads = 1) {
  EngineOptions o;
  o.threads = threads, o.slots = 3, o.weights = weights, o.compute = "fast";
  return o;
}

SpeechRequest sampled(const std::string& text, uint64_t seed) {
  SpeechRequest r = simple(text, 24);
  r.sampling = {};
  r.seed = seed;
  return r;
}

std::vector<int32_t> random_codes(size_t frames, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> codes(frames * 16);
  for (int32_t& c : codes) c = static_cast<int32_t>(random() % 64);
  return codes;
}

class Fast : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Weights, Fast, ::testing::Values("auto", "int8"),
                         [](const auto& p) { return std::string(p.param); });

/// Neither chunks nor threads, nor other requests in the same programs, change a code or a sample.
TEST_P(Fast, RequestsAreTheSameHoweverTheyRun) {
  const SpeechRequest requests[] = {sampled("Hello there", 5), sampled("Quite another one!", 6),
                                    sampled("And a third that is longer than the others.", 7)};
  std::vector<Outcome> alone;
  for (const SpeechRequest& r : requests) {
    const auto engine = Engine::open(model_dir("tiny-endless"), fast_options(GetParam()));
    alone.push_back(speak(*engine, r, nullptr, 1000));
    ASSERT_EQ(alone.back().result.frames, 24);
  }
  const auto engine = Engine::open(model_dir("tiny-endless"), fast_options(GetParam(), 2));
  for (const int32_t chunk : {1, 7}) {
    const Outcome out = speak(*engine, requests[0], nullptr, chunk);
    EXPECT_EQ(out.codes, alone[0].codes) << chunk;
    EXPECT_EQ(out.samples, alone[0].samples) << chunk;
  }
  std::vector<std::unique_ptr<SpeechStream>> streams;
  for (const SpeechRequest& r : requests) streams.push_back(engine->start_stream(r));
  std::vector<Outcome> together(streams.size());
  std::vector<std::thread> readers;
  for (size_t i = 0; i < streams.size(); ++i)
    readers.emplace_back([&, i] {
      together[i] = drain(*streams[i], 5);
      together[i].codes = streams[i]->codes();
    });
  for (std::thread& reader : readers) reader.join();
  for (size_t i = 0; i < streams.size(); ++i) {
    EXPECT_EQ(together[i].codes, alone[i].codes) << i;
    EXPECT_EQ(together[i].samples, alone[i].samples) << i;
  }
}

TEST_P(Fast, AReplayComputesWhatTheRunComputed) {
  const auto engine = Engine::open(model_dir("tiny-cv-1b7"), fast_options(GetParam()));
  std::vector<float> logits[2];
  Diagnosis d;
  const auto record = [&](std::vector<float>& to) {
    return [&to](const StepView& v) { to.insert(to.end(), v.logits.begin(), v.logits.end()); };
  };
  d.on_step = record(logits[0]);
  const Outcome run = speak(*engine, sampled("Hello there", 5), &d);
  d.on_step = record(logits[1]);
  d.replay = run.codes;
  SpeechRequest again = sampled("Hello there", 99);
  again.max_frames.reset();
  const Outcome replay = speak(*engine, again, &d);
  EXPECT_EQ(replay.samples, run.samples);
  EXPECT_FALSE(logits[0].empty());
  EXPECT_EQ(logits[0], logits[1]);
}

/// The talker's logits over the same codes: rounded, but hardly.
TEST(FastAccuracy, LogitsOfForcedFrames) {
  const std::vector<int32_t> codes = random_codes(20, 3);
  std::vector<std::vector<float>> logits;
  for (const char* compute : {"exact", "fast"}) {
    EngineOptions o;
    o.threads = 1, o.compute = compute;
    const auto engine = Engine::open(model_dir("tiny-cv"), o);
    Diagnosis d;
    d.replay = codes;
    d.on_step = [&, all = &logits.emplace_back()](const StepView& v) {
      all->insert(all->end(), v.logits.begin(), v.logits.end());
      all->insert(all->end(), v.predictor_logits.begin(), v.predictor_logits.end());
    };
    SpeechRequest r = simple("Hello there", 20);
    r.max_frames.reset();
    speak(*engine, r, &d);
  }
  ASSERT_EQ(logits[0].size(), logits[1].size());
  double product = 0, squares[2] = {};
  for (size_t i = 0; i < logits[0].size(); ++i) {
    product += static_cast<double>(logits[0][i]) * logits[1][i];
    for (const size_t k : {0u, 1u}) squares[k] += static_cast<double>(logits[k][i]) * logits[k][i];
  }
  EXPECT_GT(product / std::sqrt(squares[0] * squares[1]), 0.99999);
  EXPECT_NE(logits[0], logits[1]) << "nothing was rounded";
}

TEST(FastCodec, RandomChunksGiveTheWholeBitForBit) {
  const auto core = engine::load_core(model_dir("tiny-cv"), fast_options("auto"));
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::official}) {
    const std::vector<int32_t> codes = random_codes(325, 5);
    std::vector<float> whole;
    engine::CodecRun(*core, 0, mode).decode(codes, whole);
    for (const size_t most : {1u, 5u, 70u}) {
      std::mt19937 random(static_cast<uint32_t>(most));
      engine::CodecRun run(*core, 0, mode);
      std::vector<float> out;
      for (size_t done = 0, n; done < codes.size(); done += n) {
        n = std::min(codes.size() - done, (1 + random() % most) * 16);
        run.decode(std::span(codes).subspan(done, n), out);
      }
      EXPECT_EQ(out, whole) << most;
    }
  }
}

TEST(FastCodec, ThreadsAndChunksOfTheModelDoNotMatter) {
  const std::vector<int32_t> codes = random_codes(60, 6);
  std::vector<float> first;
  for (const int32_t threads : {1, 2})
    for (const int32_t chunk : {1, 3, 50}) {
      EngineOptions o = fast_options("auto", threads);
      o.codec_chunk = chunk;
      const std::vector<float> here = Engine::open(model_dir("tiny-cv"), o)->decode(codes, DecodeMode::whole);
      if (first.empty()) first = here;
      EXPECT_EQ(here, first) << threads << " threads, " << chunk;
    }
}

}  // namespace
}  // namespace skald::test
