// What users reported of comparable systems, tried here: running away, limits, seeds, order, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>

#include "support.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kStop = 102;
constexpr size_t kFrame = 1920;

SpeechRequest unlimited(const std::string& text) {
  SpeechRequest r = simple(text);
  r.max_frames.reset();
  return r;
}

/// A talker whose code0 of every frame the test decides; -1 = its own draw.
Diagnosis script(std::function<int32_t(int64_t)> code0) {
  Diagnosis d;
  d.script = [code0 = std::move(code0)](int64_t frame, std::span<int32_t> codes) {
    return codes[0] = code0(frame), true;
  };
  return d;
}

int32_t healthy(int64_t frame) { return static_cast<int32_t>(frame * 7 % 61); }

// B003: inputs of one to three characters are bounded, and the answer says so.
TEST(Reports, B003_ShortCountingPhrases) {
  for (const char* text : {"1\u6b21", "2\u6b21", "1.", "1\u3002"}) {
    SpeechRequest r = unlimited(text);
    r.stall_frames = 0;
    const Outcome out = speak(tiny("tiny-endless"), r, nullptr, 50);
    ASSERT_TRUE(out.error) << text;
    EXPECT_EQ(out.error->code(), ErrorCode::runaway);
    EXPECT_THAT(out.error->what(), HasSubstr("240 frames"));
    EXPECT_EQ(out.result.frames, 240);
    EXPECT_EQ(out.result.frame_bound, 240);
  }
}

// B018: healthy speech, then a loop: stopped early and flagged.
TEST(Reports, B018_StationaryLoopAfterSpeech) {
  const Diagnosis d = script([](int64_t f) { return f < 40 ? healthy(f) : 5 + static_cast<int32_t>(f % 2); });
  const Outcome out = speak(tiny("tiny-endless"), unlimited("Hello"), &d, 16);
  ASSERT_TRUE(out.error);
  EXPECT_EQ(out.error->code(), ErrorCode::runaway);
  EXPECT_EQ(out.result.stop, StopReason::runaway);
  EXPECT_THAT(out.result.frames, ::testing::AllOf(::testing::Ge(112), ::testing::Le(115)));
}

// B019: no end token is an error on every kind of stream, with the complete frames delivered before it.
TEST(Reports, B019_RunawayIsNeverASuccess) {
  const Diagnosis d = script(healthy);
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::whole, DecodeMode::official}) {
    SpeechRequest r = unlimited("Hello");
    r.decode = mode;
    const Outcome out = speak(tiny("tiny-cv"), r, &d, 32);
    ASSERT_TRUE(out.error);
    EXPECT_EQ(out.error->code(), ErrorCode::runaway);
    EXPECT_EQ(out.result.stop, StopReason::runaway);
    EXPECT_EQ(out.samples.size(), 240 * kFrame);
  }
  SpeechRequest r = unlimited("Hello");
  const auto stream = tiny("tiny-cv").start_text_stream(r, &d);
  stream->finish();
  StreamReply reply;
  while ((reply = stream->poll(32)).event == StreamEvent::chunk) {
  }
  ASSERT_EQ(reply.event, StreamEvent::error);
  EXPECT_EQ(reply.error->code(), ErrorCode::runaway);
  EXPECT_EQ(stream->result().frames, 240);
}

// B023: max_frames N gives N frames, max_new_tokens N the official N - 1.
TEST(Reports, B023_FrameLimit) {
  Engine& engine = tiny("tiny-endless");
  for (const int32_t n : {1, 2, 15, 16, 17}) {
    const Outcome out = speak(engine, simple("Hello there", n));
    EXPECT_FALSE(out.error);
    EXPECT_EQ(out.samples.size(), static_cast<size_t>(n) * kFrame);
    EXPECT_EQ(out.result.stop, StopReason::length);
    if (n < 2) continue;
    SpeechRequest r = unlimited("Hello there");
    r.max_new_tokens = n;
    EXPECT_EQ(speak(engine, r).samples.size(), static_cast<size_t>(n - 1) * kFrame);
  }
  for (const int32_t n : {0, -1, -16}) {
    EXPECT_EQ(error_of([&] { engine.start_stream(simple("x", n)); }).code(), ErrorCode::invalid_argument);
    SpeechRequest r = unlimited("x");
    r.max_new_tokens = n;
    EXPECT_EQ(error_of([&] { engine.start_stream(r); }).code(), ErrorCode::invalid_argument);
  }
  SpeechRequest r = unlimited("x");
  r.max_new_tokens = 1;
  EXPECT_EQ(error_of([&] { engine.start_stream(r); }).code(), ErrorCode::invalid_argument);
}

// B025: every knob moves the stage it is named after; temperature 0 is argmax on both.
TEST(Reports, B025_TemperaturesReachBothStages) {
  Engine& engine = tiny("tiny-endless");
  SpeechRequest greedy = simple("Hello there", 12), zero = greedy;
  zero.sampling = {.temperature = 0.0f, .sub_temperature = 0.0f};
  EXPECT_EQ(speak(engine, zero).codes, speak(engine, greedy).codes);

  const auto with = [&](const Sampling& sampling) {
    SpeechRequest r = simple("Hello there", 12);
    r.sampling = sampling;
    return speak(engine, r);
  };
  // The talker's knobs: the first codes differ while the predictor stays greedy.
  const Outcome base = with({.temperature = 30.0f, .top_k = 0, .sub_greedy = true});
  EXPECT_NE(with({.temperature = 3.0f, .top_k = 0, .sub_greedy = true}).code0(), base.code0());
  EXPECT_NE(with({.temperature = 30.0f, .top_k = 2, .sub_greedy = true}).code0(), base.code0());
  EXPECT_NE(with({.temperature = 30.0f, .top_p = 0.3f, .top_k = 0, .sub_greedy = true}).code0(),
            base.code0());
  // The predictor's knobs: the very first frame's code0 is the same, its other codes are not.
  const auto first = [](const Outcome& o, bool code0) {
    return std::vector<int32_t>(o.codes.begin() + (code0 ? 0 : 1), o.codes.begin() + (code0 ? 1 : 16));
  };
  const Outcome sub = with({.temperature = 0.0f, .sub_temperature = 30.0f, .sub_top_k = 0});
  for (const Sampling& s :
       {Sampling{.temperature = 0.0f, .sub_temperature = 1.0f, .sub_top_k = 0},
        Sampling{.temperature = 0.0f, .sub_temperature = 30.0f, .sub_top_k = 1},
        Sampling{.temperature = 0.0f, .sub_temperature = 30.0f, .sub_top_p = 0.1f, .sub_top_k = 0}}) {
    const Outcome other = with(s);
    EXPECT_EQ(first(other, true), first(sub, true));
    EXPECT_NE(first(other, false), first(sub, false));
  }
  SpeechRequest penalised = greedy;
  penalised.max_frames = 60;
  const Outcome mild = speak(engine, penalised);
  penalised.sampling.repetition_penalty = 50.0f;
  EXPECT_NE(speak(engine, penalised).code0(), mild.code0());
}

// B026: a held vowel is not a stall; a stuck talker is.
TEST(Reports, B026_HeldSoundsPass) {
  const auto run = [](int64_t held) {
    const Diagnosis d = script([held](int64_t f) {
      if (f < 10) return healthy(f);
      if (f < 10 + held) return int32_t{17};
      return f < 20 + held ? healthy(f) : kStop;
    });
    return speak(tiny("tiny-cv"), unlimited("Hello"), &d, 16);
  };
  const Outcome vowel = run(7);
  EXPECT_FALSE(vowel.error);
  EXPECT_EQ(vowel.result.stop, StopReason::eos);
  EXPECT_EQ(vowel.result.frames, 27);
  EXPECT_FALSE(run(60).error);
  const Outcome stuck = run(80);
  ASSERT_TRUE(stuck.error);
  EXPECT_EQ(stuck.error->code(), ErrorCode::runaway);
}

TEST(Reports, B026_NoStallWhileTextIsFed) {
  SpeechRequest r = unlimited("");
  for (int i = 0; i < 50; ++i) r.text += " 123";
  r.layout = TextLayout::stream;
  const Diagnosis d = script([](int64_t f) { return f < 140 ? 17 : kStop; });
  const Outcome out = speak(tiny("tiny-cv"), r, &d, 32);
  EXPECT_FALSE(out.error) << out.error->what();
  EXPECT_EQ(out.result.frames, 140);
}

// B027: one seed fixes both stages, whatever ran before, also in a new process (here: a new engine).
TEST(Reports, B027_SeedFixesEverything) {
  Engine& engine = tiny("tiny-endless");
  SpeechRequest r = simple("Hello there", 10);
  r.sampling = {.temperature = 10.0f, .sub_temperature = 10.0f};
  r.seed = 1234;
  const Outcome first = speak(engine, r);
  std::vector<std::vector<int32_t>> others;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1235}, uint64_t{1234} + (uint64_t{1} << 32),
                              uint64_t{INT64_MAX}, UINT64_MAX}) {
    SpeechRequest other = r;
    other.seed = seed;
    others.push_back(speak(engine, other).codes);
    EXPECT_EQ(speak(engine, r).codes, first.codes);
  }
  others.push_back(first.codes);
  std::sort(others.begin(), others.end());
  EXPECT_EQ(std::unique(others.begin(), others.end()), others.end()) << "all 64 bits of a seed count";
  const auto again = Engine::open(model_dir("tiny-endless"));
  EXPECT_EQ(speak(*again, r).codes, first.codes);
  EXPECT_EQ(speak(*again, r).samples, first.samples);
}

// B054: the number of samples is exact and known with the last chunk, in every mode.
TEST(Reports, B054_SampleCountsAreExact) {
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::whole, DecodeMode::official}) {
    for (const int32_t chunk : {1, 5, 64}) {
      SpeechRequest r = simple("Hello", 23);
      r.decode = mode;
      const Outcome out = speak(tiny("tiny-endless"), r, nullptr, chunk);
      EXPECT_EQ(out.samples.size(), 23 * kFrame);
      EXPECT_EQ(out.result.samples, static_cast<int64_t>(23 * kFrame));
    }
  }
}

// B058: the first samples are there long before the last frame is drawn; a slow reader holds generation back.
TEST(Reports, B058_AudioComesWhileItIsGenerated) {
  int64_t drawn = 0;
  Diagnosis d;
  d.on_step = [&](const StepView& v) { drawn = v.step + 1; };
  const auto stream = tiny("tiny-endless").start_stream(simple("Hello", 100), &d);
  EXPECT_EQ(stream->next_audio(8).samples.size(), kFrame);
  EXPECT_EQ(drawn, 1);
  EXPECT_EQ(stream->next_audio(8).frames, 8);
  EXPECT_EQ(drawn, 9);
}

// B060: all lines of a text that comes line by line are spoken.
TEST(Reports, B060_EveryLineIsRead) {
  for (const int lines : {1, 2, 100}) {
    std::string text;
    std::vector<std::string> pieces;
    for (int i = 0; i < lines; ++i)
      pieces.push_back("Line " + std::to_string(i) + "\n"), text += pieces.back();
    SpeechRequest r = simple("", 900);
    r.layout = TextLayout::stream;
    const Outcome out = speak_pieces(tiny("tiny-endless"), r, pieces, 64);
    ASSERT_FALSE(out.error) << out.error->what();
    const size_t ids =
        tiny_core("tiny-endless")->tokenizer.encode_text(text, text::SplitRule::qwen, false).size() - 8;
    EXPECT_EQ(out.result.text_tokens, static_cast<int32_t>(ids));
  }
}

// B076: N frames before the stop token are N * 1920 samples; the codec's tail is not lost.
TEST(Reports, B076_LastWordsAreThere) {
  for (const int64_t frames : {2, 3, 31, 32, 33}) {
    const Diagnosis d = script([&](int64_t f) { return f < frames ? healthy(f) : kStop; });
    for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::whole, DecodeMode::official}) {
      SpeechRequest r = unlimited("Hello");
      r.decode = mode;
      const Outcome out = speak(tiny("tiny-cv"), r, &d, 16);
      EXPECT_EQ(out.result.stop, StopReason::eos);
      ASSERT_EQ(out.samples.size(), static_cast<size_t>(frames) * kFrame);
      EXPECT_EQ(out.samples, tiny("tiny-cv").decode(out.codes, mode));
    }
  }
}

SpeechRequest in_context(size_t ref_frames, int32_t frames) {
  SpeechRequest r = {.text = "Hello there"};
  r.ref_text = "a b c", r.x_vector.assign(32, 0.2f), r.consent = "synthetic numbers";
  std::mt19937 random(9);
  for (size_t i = 0; i < ref_frames * 16; ++i) r.ref_codes.push_back(static_cast<int32_t>(random() % 64));
  r.sampling.greedy = true, r.max_frames = frames, r.seed = 1;
  return r;
}

// B077: exactly the reference is cut off a clone.
TEST(Reports, B077_ReferenceIsCutExactly) {
  Engine& engine = tiny("tiny-base");
  Diagnosis d = script(healthy);
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::whole, DecodeMode::official}) {
    SpeechRequest r = in_context(290, 20);  // the official chunk border lies in the speech
    r.decode = mode;
    const Outcome out = speak(engine, r, &d, 6);
    ASSERT_FALSE(out.error) << out.error->what();
    std::vector<int32_t> both = r.ref_codes;
    both.insert(both.end(), out.codes.begin(), out.codes.end());
    const std::vector<float> all = engine.decode(both, mode);
    EXPECT_EQ(out.samples, std::vector<float>(all.begin() + 290 * kFrame, all.end()));
  }
}

TEST(Reports, B077_OfficialCutArithmetic) {
  const std::pair<size_t, size_t> cases[] = {{15, 22}, {13, 23}, {17, 23}, {10, 20}};
  const size_t cuts[] = {28'799, 24'959, 32'639, 19'200};
  Diagnosis d = script(healthy);
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto [reference, total] = cases[i];
    SpeechRequest r = in_context(reference, static_cast<int32_t>(total - reference));
    r.cut = CutMode::official;
    const Outcome out = speak(tiny("tiny-base"), r, &d, 3);
    EXPECT_EQ(out.samples.size(), total * kFrame - cuts[i]);
    std::vector<int32_t> both = r.ref_codes;
    both.insert(both.end(), out.codes.begin(), out.codes.end());
    const std::vector<float> all = tiny("tiny-base").decode(both, DecodeMode::stream);
    EXPECT_EQ(out.samples, std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(cuts[i]), all.end()));
    EXPECT_EQ(out.result.samples, static_cast<int64_t>(out.samples.size()));
  }
}

// B080: the same request again and again, similar and other ones between, with kept prefixes and without.
TEST(Reports, B080_RequestsInARowDoNotDisturbEachOther) {
  SpeechRequest a = simple("The first of all words", 25), a2 = simple("The first of all worlds", 25),
                b = simple("Something else entirely, and longer than that", 40);
  a.sampling = {}, a2.sampling = {}, b.voice = "dora";
  EngineOptions options;
  options.threads = 1, options.kept_voices = 0;
  const Outcome first = speak(*Engine::open(model_dir("tiny-cv"), options), a);
  for (const int32_t kept : {0, 1, 4}) {
    options.kept_voices = kept;
    const auto engine = Engine::open(model_dir("tiny-cv"), options);
    int32_t reused = 0;
    for (const SpeechRequest* r : {&a, &a, &a2, &b, &a}) {
      const Outcome out = speak(*engine, *r);
      reused += out.result.reused_rows;
      if (r == &a) {
        EXPECT_EQ(out.codes, first.codes) << kept;
        EXPECT_EQ(out.samples, first.samples) << kept;
      } else {
        EXPECT_NE(out.codes, first.codes);
      }
    }
    EXPECT_EQ(reused > 0, kept > 0);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // keeps freed memory on purpose
#else
constexpr bool kSanitized = false;
#endif

size_t resident_kib() {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word)
    if (word == "VmRSS:") return in >> word, std::stoul(word);
  return 0;
}

// B085: a thousand requests of random lengths, of every kind and end; memory is flat after the first fifty.
TEST(Reports, B085_MemoryIsFlat) {
  Engine& engine = tiny("tiny-cv");
  std::mt19937 random(2);
  size_t after_fifty = 0;
  for (int i = 0; i < (kSanitized ? 60 : 1000); ++i) {
    SpeechRequest r = simple("Some words, more or less", 1 + static_cast<int32_t>(random() % 6));
    r.decode = static_cast<DecodeMode>(random() % 3);
    r.sampling = {};
    if (i % 3 == 0) {
      speak_pieces(engine, r, {" and", " more"});
    } else if (i % 7 == 0) {
      engine.start_stream(r)->next_audio(1);  // dropped
    } else {
      speak(engine, r);
    }
    if (i == 50) after_fifty = resident_kib();
  }
  EXPECT_GT(after_fifty, 0u);
  if (kSanitized) return;
  EXPECT_LT(resident_kib(), after_fifty + 2048) << "KiB";
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// A run of 4,096 frames: the last frames cost what the first ones cost, apart from attending to a longer
// past; memory grows by the codes and the touched part of the cache. Slow, so it runs with `ctest -L full`.
TEST(LongRun, DISABLED_TimeAndMemoryPerFrameStayFlat) {
  EngineOptions options;
  options.threads = 1, options.cache_capacity = 4200;
  const auto engine = Engine::open(model_dir("tiny-endless"), options);
  const auto stream = engine->start_stream(simple("Hello there", 4096));
  std::vector<double> early, late;
  size_t memory_early = 0;
  double before = 0;
  for (bool last = false; !last;) {
    last = stream->next_audio(8).last;
    const SpeechResult r = stream->result();
    if (r.frames > 300 && r.frames <= 700) early.push_back(r.compute_ms - before);
    if (r.frames > 3600 && r.frames < 4096) late.push_back(r.compute_ms - before);
    if (r.frames > 700 && memory_early == 0) memory_early = resident_kib();
    before = r.compute_ms;
  }
  EXPECT_EQ(stream->result().frames, 4096);
  EXPECT_LT(median(late), 3 * median(early));
  const size_t cache_kib = 2 * 2 * 4200 * 64 * sizeof(float) / 1024;
  EXPECT_LT(resident_kib(), memory_early + cache_kib + 2048);
}

// B089: nothing is printed, so a pipe that nobody reads stalls nothing.
TEST(Reports, B089_NothingIsPrinted) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const int out = dup(1), err = dup(2);
  std::fflush(nullptr);
  dup2(ends[1], 1), dup2(ends[1], 2);
  size_t produced = 0;
  SpeechRequest r = simple("Hello", 5);
  r.instruct = "ignored";
  for (int i = 0; i < 3; ++i) produced += speak(tiny("tiny-cv"), r).samples.size();
  speak(tiny("tiny-endless"), [] {
    SpeechRequest runaway = unlimited("1");
    runaway.stall_frames = 0;
    return runaway;
  }());
  std::fflush(nullptr);
  dup2(out, 1), dup2(err, 2);
  close(out), close(err), close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "something was printed";
  close(ends[0]);
  EXPECT_EQ(produced, 3 * 5 * kFrame);
}

// B112: results do not depend on what ran before, in whatever shape.
TEST(Reports, B112_AloneEqualsAfterOthers) {
  EngineOptions options;
  options.threads = 1;
  const auto fresh = Engine::open(model_dir("tiny-base"), options);
  SpeechRequest a = {.text = "Alone or after others"};
  a.x_vector.assign(32, 0.4f), a.consent = "synthetic numbers", a.max_frames = 15, a.seed = 5;
  const Outcome alone = speak(*fresh, a);
  for (uint32_t i = 0; i < 12; ++i) {
    SpeechRequest b = i % 2 ? in_context(3 + 7 * i, 9) : a;
    b.text = std::string(1 + 9 * i, 'b') + " other";
    b.layout = i % 3 ? TextLayout::whole : TextLayout::stream;
    b.decode = static_cast<DecodeMode>(i % 3);
    speak(*fresh, b, nullptr, 1 + static_cast<int32_t>(i));
    const Outcome again = speak(*fresh, a);
    ASSERT_EQ(again.codes, alone.codes) << i;
    ASSERT_EQ(again.samples, alone.samples) << i;
  }
}

}  // namespace
}  // namespace skald::test
