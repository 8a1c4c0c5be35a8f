// Streams of complete text: chunks, ends, cancellation, slots, several at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "support.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFrame = 1920;

TEST(Stream, ChunksAddUpToTheOneShotRun) {
  Engine& engine = tiny("tiny-endless");
  const Outcome whole = speak(engine, simple("Hello there", 40), nullptr, 1000);
  ASSERT_FALSE(whole.error);
  ASSERT_EQ(whole.samples.size(), 40u * kFrame);
  for (const int32_t chunk : {1, 2, 7, 39}) {
    const Outcome part = speak(engine, simple("Hello there", 40), nullptr, chunk);
    EXPECT_EQ(part.codes, whole.codes) << chunk;
    EXPECT_EQ(part.samples, whole.samples) << chunk;
    EXPECT_EQ(part.chunks.front(), 1) << "the first chunk is one frame";
    EXPECT_LE(*std::max_element(part.chunks.begin(), part.chunks.end()), chunk);
  }
}

TEST(Stream, SamplesAreTheDecodedCodes) {
  Engine& engine = tiny("tiny-endless");
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::whole, DecodeMode::official}) {
    SpeechRequest r = simple("Hello there", 310);
    r.decode = mode;
    const Outcome out = speak(engine, r, nullptr, 50);
    EXPECT_EQ(out.samples, engine.decode(out.codes, mode)) << static_cast<int>(mode);
  }
}

TEST(Stream, WholeDecodeGivesNothingBeforeTheEnd) {
  SpeechRequest r = simple("Hello", 20);
  r.decode = DecodeMode::whole;
  int64_t drawn = 0;
  Diagnosis d;
  d.on_step = [&](const StepView& v) { drawn = v.step + 1; };
  const auto stream = tiny("tiny-endless").start_stream(r, &d);
  EXPECT_EQ(stream->next_audio(6).frames, 6);
  EXPECT_EQ(drawn, 20);
}

TEST(Stream, ResultOfARun) {
  SpeechRequest r = simple("Hello there", 25);
  r.request_id = "my-id", r.seed = 77;
  const Outcome out = speak(tiny("tiny-endless"), r);
  EXPECT_EQ(out.result.stop, StopReason::length);
  EXPECT_EQ(out.result.frames, 25);
  EXPECT_EQ(out.result.samples, 25 * kFrame);
  EXPECT_EQ(out.result.seed, 77u);
  EXPECT_EQ(out.result.request_id, "my-id");
  EXPECT_EQ(out.result.frame_bound, 25);
  EXPECT_GT(out.result.prompt_rows, 8);
  EXPECT_GT(out.result.text_tokens, 0);
  EXPECT_GT(out.result.first_audio_ms, 0);
  EXPECT_GE(out.result.compute_ms, out.result.first_audio_ms * 0.5);
  EXPECT_NEAR(out.result.rtf, out.result.compute_ms / (25 * 80), 1e-9);
}

TEST(Stream, SeedAndIdAreDrawnAndReported) {
  SpeechRequest r = simple("Hello", 5);
  r.seed.reset(), r.sampling = {};
  const Outcome a = speak(tiny("tiny-cv"), r), b = speak(tiny("tiny-cv"), r);
  EXPECT_NE(a.result.seed, b.result.seed);
  EXPECT_NE(a.result.request_id, b.result.request_id);
  EXPECT_EQ(a.result.request_id.size(), 32u);
  EXPECT_LT(a.result.seed, uint64_t{1} << 53);
  r.seed = a.result.seed;
  EXPECT_EQ(speak(tiny("tiny-cv"), r).codes, a.codes);
}

TEST(Stream, EmptyLastChunkAfterTheEnd) {
  const auto stream = tiny("tiny-endless").start_stream(simple("Hello", 3));
  EXPECT_EQ(drain(*stream).codes.size(), 48u);
  const AudioChunk after = stream->next_audio(4);
  EXPECT_TRUE(after.last);
  EXPECT_EQ(after.frames, 0);
  EXPECT_EQ(stream->codes().size(), 48u);
}

TEST(Stream, ChunkOfNoFramesIsRefusedAndHarmless) {
  const auto stream = tiny("tiny-endless").start_stream(simple("Hello", 3));
  EXPECT_EQ(error_of([&] { stream->next_audio(0); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(drain(*stream).codes.size(), 48u);
}

TEST(Stream, StopTokenAtOnceIsAnEmptyResultWithAWarning) {
  SpeechRequest r = simple("Hello", 10);
  r.sampling.min_new_tokens = 0;
  Diagnosis d;
  d.script = [](int64_t, std::span<int32_t> codes) { return codes[0] = 102, true; };
  const Outcome out = speak(tiny("tiny-cv"), r, &d);
  EXPECT_FALSE(out.error);
  EXPECT_EQ(out.result.stop, StopReason::eos);
  EXPECT_EQ(out.result.frames, 0);
  EXPECT_TRUE(out.samples.empty());
  ASSERT_FALSE(out.result.warnings.empty());
  EXPECT_THAT(out.result.warnings.front(), HasSubstr("no audio"));
}

TEST(Stream, CancelEndsWithinAFrame) {
  SpeechRequest r = simple("Hello", 1000);
  std::unique_ptr<SpeechStream> stream;
  Diagnosis d;
  d.on_step = [&](const StepView& v) {
    if (v.step == 5) stream->cancel();
  };
  stream = tiny("tiny-endless").start_stream(r, &d);
  const Error error = error_of([&] {
    for (;;) stream->next_audio(100);
  });
  EXPECT_EQ(error.code(), ErrorCode::cancelled);
  EXPECT_EQ(stream->result().stop, StopReason::cancelled);
  EXPECT_LE(stream->result().frames, 7);
  EXPECT_EQ(error_of([&] { stream->next_audio(1); }).code(), ErrorCode::cancelled);
}

TEST(Stream, CancelFromAnotherThread) {
  const auto stream = tiny("tiny-endless").start_stream(simple("Hello", 4000));
  std::thread other([&] { stream->cancel(); });
  const Outcome out = drain(*stream, 10);
  other.join();
  ASSERT_TRUE(out.error);
  EXPECT_EQ(out.error->code(), ErrorCode::cancelled);
}

TEST(Stream, ExceptionOfACallbackEndsTheStreamAndFreesTheSlot) {
  Diagnosis d;
  d.on_step = [](const StepView&) { throw std::runtime_error("from outside"); };
  const auto stream = tiny("tiny-endless").start_stream(simple("Hello", 10), &d);
  EXPECT_THROW(stream->next_audio(1), std::runtime_error);
  EXPECT_EQ(stream->result().stop, StopReason::error);
  const auto a = tiny("tiny-endless").start_stream(simple("Hello", 3));
  const auto b = tiny("tiny-endless").start_stream(simple("Hello", 3));
  EXPECT_FALSE(drain(*a).error);
}

TEST(Slots, AreTakenAndGivenBack) {
  Engine& engine = tiny("tiny-endless");
  auto a = engine.start_stream(simple("one", 3)), b = engine.start_stream(simple("two", 3));
  const Error error = error_of([&] { engine.start_stream(simple("three", 3)); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("all 2 slots"));
  EXPECT_EQ(error_of([&] { engine.start_text_stream(simple("three", 3)); }).code(), ErrorCode::unsupported);
  EXPECT_EQ(error_of([&] { engine.decode(std::vector<int32_t>(16, 0), DecodeMode::stream); }).code(),
            ErrorCode::unsupported);
  drain(*a);  // a finished stream needs no slot any more
  auto c = engine.start_stream(simple("three", 3));
  b.reset();
  EXPECT_NO_THROW(engine.decode(std::vector<int32_t>(16, 0), DecodeMode::stream));
}

TEST(Slots, ARefusedRequestTakesNone) {
  Engine& engine = tiny("tiny-endless");
  for (int i = 0; i < 5; ++i) EXPECT_ANY_THROW(engine.start_stream({.text = "x", .voice = "nobody"}));
  Diagnosis bad;
  bad.replay.assign(15, 0);
  for (int i = 0; i < 5; ++i) EXPECT_ANY_THROW(engine.start_stream(simple("x"), &bad));
  SpeechRequest r = simple("x");
  r.max_frames.reset();
  for (int i = 0; i < 3000; ++i) r.text += " 1 2 3";
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(error_of([&] { engine.start_stream(r); }).code(), ErrorCode::text_too_long);
  const auto a = engine.start_stream(simple("one", 3)), b = engine.start_stream(simple("two", 3));
}

TEST(Streams, OutliveTheirEngine) {
  EngineOptions options;
  options.threads = 1;
  auto engine = Engine::open(model_dir("tiny-endless"), options);
  const auto stream = engine->start_stream(simple("Hello there", 12));
  stream->next_audio(1);
  engine.reset();
  EXPECT_EQ(drain(*stream).codes, speak(tiny("tiny-endless"), simple("Hello there", 12)).codes);
}

TEST(Streams, InterleavedEqualAlone) {
  Engine& engine = tiny("tiny-cv");
  SpeechRequest r1 = simple("First sentence.", 30), r2 = simple("Quite another one!", 30);
  r1.sampling = r2.sampling = {};
  r2.seed = 99, r2.voice = "dora";
  const Outcome alone1 = speak(engine, r1), alone2 = speak(engine, r2);
  const auto a = engine.start_stream(r1), b = engine.start_stream(r2);
  std::vector<float> samples1, samples2;
  for (bool last1 = false, last2 = false; !last1 || !last2;) {
    const AudioChunk c1 = a->next_audio(3), c2 = b->next_audio(2);
    samples1.insert(samples1.end(), c1.samples.begin(), c1.samples.end());
    samples2.insert(samples2.end(), c2.samples.begin(), c2.samples.end());
    last1 = c1.last, last2 = c2.last;
  }
  EXPECT_EQ(a->codes(), alone1.codes);
  EXPECT_EQ(b->codes(), alone2.codes);
  EXPECT_EQ(samples1, alone1.samples);
  EXPECT_EQ(samples2, alone2.samples);
}

TEST(Streams, TwoThreadsTakeTurns) {
  constexpr int32_t kFrames = 300;
  Engine& engine = tiny("tiny-endless");
  const SpeechRequest r1 = simple("one two three", kFrames), r2 = simple("four", kFrames);
  const Outcome alone1 = speak(engine, r1), alone2 = speak(engine, r2);
  std::atomic<int64_t> done1 = 0, done2 = 0, other_when_first_ended = -1;
  std::barrier both_speak(2);
  const auto count = [&](std::atomic<int64_t>& own, const std::atomic<int64_t>& other) {
    return [&](const StepView& v) {
      if (v.step == 1) both_speak.arrive_and_wait();
      own = v.step + 1;
      if (own == kFrames && other_when_first_ended < 0) other_when_first_ended = other.load();
    };
  };
  Diagnosis d1, d2;
  d1.on_step = count(done1, done2), d2.on_step = count(done2, done1);
  const auto a = engine.start_stream(r1, &d1), b = engine.start_stream(r2, &d2);
  Outcome out1;
  std::thread other([&] { out1 = drain(*a, kFrames); });
  const Outcome out2 = drain(*b, kFrames);
  other.join();
  EXPECT_EQ(out1.codes, alone1.codes);
  EXPECT_EQ(out2.codes, alone2.codes);
  EXPECT_GE(other_when_first_ended, 20) << "one stream kept the other waiting";
}

TEST(Limits, CacheLeavesTooFewFrames) {
  EngineOptions options;
  options.threads = 1, options.cache_capacity = 100;
  const auto engine = Engine::open(model_dir("tiny-endless"), options);
  EXPECT_FALSE(speak(*engine, simple("Hello", 60)).error);
  SpeechRequest r = simple("Hello");
  r.max_frames = 95;
  EXPECT_EQ(error_of([&] { engine->start_stream(r); }).code(), ErrorCode::text_too_long);
  r.max_frames.reset();
  EXPECT_EQ(error_of([&] { engine->start_stream(r); }).code(), ErrorCode::text_too_long);
}

TEST(Limits, AFullCacheIsARunaway) {
  EngineOptions options;
  options.threads = 1, options.cache_capacity = 280;
  const auto engine = Engine::open(model_dir("tiny-endless"), options);
  const Outcome out = speak(*engine, simple("Hello", 1000), nullptr, 16);
  ASSERT_TRUE(out.error);
  EXPECT_EQ(out.error->code(), ErrorCode::runaway);
  EXPECT_THAT(out.error->what(), HasSubstr("cache of 280 positions"));
  EXPECT_EQ(out.result.stop, StopReason::runaway);
  EXPECT_EQ(static_cast<int64_t>(out.samples.size()), out.result.frames * kFrame)
      << "complete frames are delivered";
}

TEST(Prompt, TellsLanguageRowsAndTrailing) {
  SpeechRequest r = simple("Hello, world.");
  r.layout = TextLayout::stream, r.voice = "bo", r.language = "zh-CN";
  const PromptInfo info = tiny("tiny-cv").prompt(r);
  EXPECT_EQ(info.language, "sichuan_dialect");
  EXPECT_EQ(info.rows.size(), 3u + 4 + 1 + 1 + 1);
  EXPECT_EQ(info.rows.back().text_id, info.ids[3]);
  EXPECT_EQ(info.trailing.size(), info.ids.size() - 9 + 1);
}

}  // namespace
}  // namespace skald::test
