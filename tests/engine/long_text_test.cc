// Long text: what each piece receives, joins, second tries, limits, text that arrives.
#include "engine/long_text.h"

#include <cmath>
#include <deque>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_engine.h"

namespace skald::engine {
namespace {

using test::FakeEngine;
using test::Script;
using testing::ElementsAre;
using testing::HasSubstr;

struct Spoken {
  std::vector<float> samples;
  int64_t frames = 0;
  LongTextResult result;
};

Spoken speak(LongText& text, int32_t chunk = 2) {
  Spoken out;
  for (;;) {
    const AudioChunk next = text.next_audio(chunk);
    out.samples.insert(out.samples.end(), next.samples.begin(), next.samples.end());
    out.frames += next.frames;
    if (next.last) break;
  }
  out.result = text.result();
  return out;
}

SpeechRequest request(std::string text) {
  SpeechRequest out;
  out.text = std::move(text);
  out.voice = "vivian";
  out.language = "english";
  out.instruct = "calm";
  out.seed = 100;
  return out;
}

std::string sentences(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "This is sentence number " + std::to_string(i) + " of the long text. ";
  return text;
}

float largest_step(const std::vector<float>& samples) {
  float step = 0;
  for (size_t i = 1; i < samples.size(); ++i) step = std::max(step, std::fabs(samples[i] - samples[i - 1]));
  return step;
}

// ---- one request for a short text (B059), and its samples untouched (B076) ----

TEST(LongText, B059_TwoSentencesBelowTheLimitAreOneGeneration) {
  FakeEngine engine;
  LongText text(engine, request("First sentence. And a second, with a comma - and a dash."), {});
  const Spoken spoken = speak(text);
  ASSERT_EQ(engine.requests.size(), 1u);
  EXPECT_EQ(engine.requests[0].text, "First sentence. And a second, with a comma - and a dash.");
  EXPECT_EQ(*engine.requests[0].seed, 100u);
  EXPECT_EQ(spoken.samples, std::vector<float>(3 * FakeEngine::kFrame, 1.0f));
  EXPECT_EQ(text.piece_count(), 1);
}

TEST(LongText, B059_EveryPieceHasTheSameVoice) {
  FakeEngine engine;
  LongText text(engine, request(sentences(40)), {});
  speak(text);
  ASSERT_GT(engine.requests.size(), 3u);
  for (size_t i = 0; i < engine.requests.size(); ++i) {
    EXPECT_EQ(engine.requests[i].voice, "vivian");
    EXPECT_EQ(engine.requests[i].language, "english");
    EXPECT_EQ(engine.requests[i].instruct, "calm");
    EXPECT_EQ(*engine.requests[i].seed, 100 + i);
  }
}

TEST(LongText, B074_AHundredSentencesArriveWholeAndInOrder) {
  FakeEngine engine;
  const std::string whole = sentences(100);
  LongText text(engine, request(whole), {});
  const Spoken spoken = speak(text);
  std::string joined;
  for (const SpeechRequest& piece : engine.requests) {
    EXPECT_LE(piece.text.size(), 400u);
    joined += piece.text;
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(spoken.result.pieces.size(), engine.requests.size());
}

TEST(LongText, B076_EverySampleOfEveryPieceIsThere) {
  for (const bool hold : {false, true}) {
    for (const int32_t chunk : {1, 2, 7, 1000}) {
      FakeEngine engine;
      engine.script = [](const SpeechRequest& piece) {
        return Script{.frames = 1 + static_cast<int32_t>(*piece.seed % 5)};
      };
      LongTextOptions options;
      options.hold_pieces = hold;
      options.pause_ms = 100;
      LongText text(engine, request(sentences(30)), options);
      const Spoken spoken = speak(text, chunk);
      int64_t frames = 0;
      for (const PieceReport& piece : spoken.result.pieces)
        frames += 1 + static_cast<int32_t>(piece.seed % 5);
      const auto pauses = static_cast<int64_t>(spoken.result.pieces.size() - 1) * 2400;
      EXPECT_EQ(static_cast<int64_t>(spoken.samples.size()), frames * FakeEngine::kFrame + pauses);
      EXPECT_EQ(spoken.frames, frames);
      EXPECT_EQ(spoken.result.total.frames, frames);
      EXPECT_EQ(spoken.result.total.samples, static_cast<int64_t>(spoken.samples.size()));
      EXPECT_EQ(spoken.result.total.stop, StopReason::eos);
    }
  }
}

TEST(LongText, B075_ClonesGetShorterPieces) {
  const auto limit_of = [](const std::string& dir) { return piece_limit_of(model::load_config(dir)); };
  EXPECT_EQ(limit_of(SKALD_FIXTURES "/models/tiny-cv"), 400);
  EXPECT_EQ(limit_of(SKALD_FIXTURES "/models/tiny-base"), 200);
  EXPECT_EQ(limit_of(SKALD_SOURCE_DIR "/models/small-en"), 150) << "it swallows words of longer ones";
  FakeEngine engine;
  engine.info_.piece_limit = 200;
  LongText text(engine, request(sentences(20)), {});
  speak(text);
  for (const SpeechRequest& piece : engine.requests) EXPECT_LE(piece.text.size(), 200u);
}

TEST(LongText, NoSplitIsOneRequest) {
  FakeEngine engine;
  LongTextOptions options;
  options.split = false;
  LongText text(engine, request(sentences(100)), options);
  speak(text);
  ASSERT_EQ(engine.requests.size(), 1u);
  EXPECT_EQ(engine.requests[0].text, sentences(100));
}

// ---- joins (B036) ----

TEST(LongText, B036_NoStepAtTheJoins) {
  for (const int32_t pause : {0, 120}) {
    FakeEngine engine;
    engine.script = [](const SpeechRequest& piece) {
      return Script{.level = *piece.seed % 2 == 0 ? 1.0f : -1.0f};
    };
    LongTextOptions options;
    options.pause_ms = pause;
    LongText text(engine, request(sentences(30)), options);
    const Spoken spoken = speak(text);
    ASSERT_GT(spoken.result.pieces.size(), 2u);
    // A full-scale step over 5 ms with a raised cosine: at most pi / 2 / 121 a sample, twice that across
    // zero.
    EXPECT_LT(largest_step(spoken.samples), 0.03f) << pause;
    EXPECT_EQ(spoken.samples.front(), 1.0f) << "the outer edges are not faded";
    EXPECT_EQ(std::fabs(spoken.samples.back()), 1.0f);
  }
}

TEST(LongText, B036_TheMeasureSeesAHardJoin) {
  PieceJoiner hard(0);
  hard.begin_piece(0);
  hard.add(std::vector<float>(10, 1.0f));
  hard.begin_piece(0);
  hard.add(std::vector<float>(10, -1.0f));
  EXPECT_EQ(largest_step(hard.finish()), 2.0f);
}

TEST(PieceJoiner, SamplesDoNotDependOnTheChunks) {
  std::vector<float> whole;
  for (const size_t chunk : {1u, 7u, 64u, 500u}) {
    PieceJoiner joiner(120);
    std::vector<float> out;
    const auto drain = [&] {
      const auto ready = joiner.take();
      out.insert(out.end(), ready.begin(), ready.end());
    };
    for (const size_t length : {500u, 50u, 200u}) {  // one is shorter than the fade
      joiner.begin_piece(10);
      for (size_t at = 0; at < length; at += chunk) {
        joiner.add(std::vector<float>(std::min(chunk, length - at), 1.0f));
        drain();
      }
    }
    const auto rest = joiner.finish();
    out.insert(out.end(), rest.begin(), rest.end());
    EXPECT_EQ(out.size(), 770u);
    EXPECT_EQ(joiner.total(), 770u);
    if (whole.empty()) whole = out;
    EXPECT_EQ(out, whole) << chunk;
  }
}

TEST(LongText, ClauseCutsGetNoPause) {
  FakeEngine engine;
  LongTextOptions options;
  options.max_piece = 40;
  LongText text(engine,
                request("a rather long clause without any end, and another long clause, and the last one"),
                options);
  const Spoken spoken = speak(text);
  ASSERT_GT(spoken.result.pieces.size(), 1u);
  EXPECT_EQ(spoken.samples.size(), spoken.result.pieces.size() * 3 * FakeEngine::kFrame);
}

// ---- runaways (B020) ----

TEST(LongText, B020_ARunawayPieceIsTriedAgainWithAnotherSeed) {
  FakeEngine engine;
  engine.script = [](const SpeechRequest& piece) {
    return Script{.runaway_at = *piece.seed == 101 ? 2 : -1};
  };
  LongTextOptions options;
  options.hold_pieces = true;
  LongText text(engine, request(sentences(20)), options);
  const Spoken spoken = speak(text);
  EXPECT_EQ(*engine.requests[1].seed, 101u);
  EXPECT_EQ(*engine.requests[2].seed, 101u + kRetrySeedStep);
  EXPECT_EQ(engine.requests[1].text, engine.requests[2].text);
  EXPECT_EQ(spoken.result.pieces[1].attempts, 2);
  EXPECT_EQ(spoken.result.pieces[0].attempts, 1);
  const auto pieces = static_cast<int64_t>(spoken.result.pieces.size());
  EXPECT_EQ(static_cast<int64_t>(spoken.samples.size()),
            pieces * 3 * FakeEngine::kFrame + (pieces - 1) * 2880);
  EXPECT_EQ(spoken.frames, pieces * 3) << "frames of the failed attempt are not counted";
}

std::string failure(LongText& text, ErrorCode expected) {
  try {
    speak(text, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected);
    return error.what();
  }
  return "no error";
}

TEST(LongText, B020_ThenTheErrorNamesThePiece) {
  FakeEngine engine;
  const auto is_second = [](const std::string& text) { return text.find("number 9 ") != std::string::npos; };
  engine.script = [&](const SpeechRequest& piece) {
    return Script{.runaway_at = is_second(piece.text) ? 1 : -1};
  };
  LongTextOptions options;
  options.hold_pieces = true;
  LongText text(engine, request(sentences(20)), options);
  const std::string message = failure(text, ErrorCode::runaway);
  EXPECT_THAT(message, HasSubstr("piece 2 of 3"));
  EXPECT_THAT(message, HasSubstr("This is sentence number 9"));
  EXPECT_THAT(message, HasSubstr("seeds 101 and 1000101"));
  EXPECT_EQ(engine.requests.size(), 3u) << "one try, one second try, and no third piece";
  EXPECT_EQ(text.result().total.stop, StopReason::runaway);
  EXPECT_EQ(text.result().pieces.size(), 2u);
  EXPECT_EQ(failure(text, ErrorCode::runaway), message) << "the error stays";
  EXPECT_EQ(text.salvage().size(), 1920u) << "what was computed can still be kept";
}

TEST(LongText, ErrorsQuoteNothingWhereALogMayNotHaveIt) {  // C019
  FakeEngine engine;
  engine.script = [&](const SpeechRequest& piece) {
    return Script{.runaway_at = piece.text.find("number 9 ") != std::string::npos ? 1 : -1};
  };
  LongTextOptions options;
  options.quote_text = false;
  LongText text(engine, request(sentences(20)), options);
  EXPECT_THAT(failure(text, ErrorCode::runaway), testing::StartsWith("piece 2 of 3: no stop token"));
}

TEST(LongText, WhatWasHeardIsNotSpokenAgain) {
  FakeEngine engine;
  engine.script = [](const SpeechRequest&) { return Script{.runaway_at = 2}; };
  LongText text(engine, request("Hello."), {});
  EXPECT_EQ(failure(text, ErrorCode::runaway), "no stop token after 240 frames")
      << "one piece: nothing to name";
  EXPECT_EQ(engine.requests.size(), 1u);
}

TEST(LongText, GreedyIsNotTriedAgain) {
  FakeEngine engine;
  engine.script = [](const SpeechRequest&) { return Script{.runaway_at = 0}; };
  SpeechRequest greedy = request("Hello.");
  greedy.sampling.greedy = true;
  LongText text(engine, greedy, {});
  failure(text, ErrorCode::runaway);
  EXPECT_EQ(engine.requests.size(), 1u) << "the same codes would come again";
}

// ---- limits ----

TEST(LongText, FrameLimitsBoundTheWholeText) {
  for (const int32_t limit : {1, 2, 3, 4, 7}) {
    FakeEngine engine;
    SpeechRequest limited = request(sentences(30));
    limited.max_frames = limit;
    LongText text(engine, limited, {});
    const Spoken spoken = speak(text);
    EXPECT_EQ(spoken.frames, limit);
    EXPECT_EQ(spoken.result.total.stop, StopReason::length);
  }
  FakeEngine engine;
  SpeechRequest limited = request(sentences(30));
  limited.max_new_tokens = 8;
  LongText text(engine, limited, {});
  EXPECT_EQ(speak(text).frames, 7) << "the official count: N - 1";
}

TEST(LongText, ALimitThatIsNotReachedIsNoLimit) {
  FakeEngine engine;
  SpeechRequest limited = request("Hello.");
  limited.max_frames = 3;
  LongText text(engine, limited, {});
  const Spoken spoken = speak(text);
  EXPECT_EQ(spoken.frames, 3);
  EXPECT_EQ(spoken.result.total.stop, StopReason::eos);
}

// ---- cancellation ----

TEST(LongText, CancelEndsItWithinAFrame) {
  FakeEngine engine;
  LongText* running = nullptr;
  int frames = 0;
  engine.script = [&](const SpeechRequest&) {
    return Script{.frames = 100, .on_frame = [&] {
                    if (++frames == 5) std::thread([&] { running->cancel(); }).join();
                  }};
  };
  LongText text(engine, request(sentences(30)), {});
  running = &text;
  failure(text, ErrorCode::cancelled);
  EXPECT_EQ(frames, 5);
  EXPECT_EQ(engine.open_streams, 0);
}

TEST(LongText, CancelBeforeTheStartCosts_NoWork) {
  FakeEngine engine;
  LongText text(engine, request("Hello."), {});
  text.cancel();
  failure(text, ErrorCode::cancelled);
  EXPECT_TRUE(engine.requests.empty());
}

// ---- text that arrives ----

/// Arrivals in order; what was spoken up to each is noted.
struct Typist {
  std::deque<TextArrival> arrivals;
  std::function<void()> before;
  TextSource source() {
    return [this] {
      if (before) before();
      TextArrival next = std::move(arrivals.front());
      arrivals.pop_front();
      return next;
    };
  }
};

TEST(LongText, ArrivingTextGivesThePiecesOfTheWholeText) {
  const std::string whole = sentences(40);
  FakeEngine one, two;
  LongText at_once(one, request(whole), {});
  const Spoken expected = speak(at_once);
  Typist typist;
  for (size_t at = 0; at < whole.size(); at += 11) typist.arrivals.push_back({whole.substr(at, 11)});
  typist.arrivals.push_back({"", true});
  LongText arriving(two, request(""), {}, typist.source());
  const Spoken spoken = speak(arriving);
  EXPECT_EQ(spoken.samples, expected.samples);
  ASSERT_EQ(one.requests.size(), two.requests.size());
  for (size_t i = 0; i < one.requests.size(); ++i) EXPECT_EQ(one.requests[i].text, two.requests[i].text);
}

TEST(LongText, APieceIsSpokenBeforeTheTextIsComplete) {
  FakeEngine engine;
  Typist typist;
  for (int i = 0; i < 20; ++i) typist.arrivals.push_back({"This is one more of the sentences that arrive. "});
  typist.arrivals.push_back({"", true});
  size_t left = 0;
  engine.script = [&](const SpeechRequest&) {
    if (engine.requests.empty() || left == 0) left = typist.arrivals.size();
    return Script{};
  };
  LongText text(engine, request(""), {}, typist.source());
  text.next_audio(1);
  EXPECT_GT(left, 5u) << "the first piece waits for its own text only";
}

TEST(LongText, ErrorsOfTheSourceNameNoPiece) {
  FakeEngine engine;
  int calls = 0;
  const TextSource source = [&]() -> TextArrival {
    if (++calls == 1) return {sentences(12)};
    throw Error(ErrorCode::invalid_text, "byte 7 is wrong");
  };
  LongText text(engine, request(""), {}, source);
  EXPECT_EQ(failure(text, ErrorCode::invalid_text), "byte 7 is wrong");
  EXPECT_EQ(engine.requests.size(), 1u) << "what came before it was spoken";
}

TEST(LongText, ProgressIsReportedWhileAPieceIsHeld) {
  FakeEngine engine;
  LongTextOptions options;
  options.hold_pieces = true;
  std::vector<int64_t> frames;
  options.on_progress = [&](int32_t, int64_t so_far) { frames.push_back(so_far); };
  LongText text(engine, request("Hello."), options);
  speak(text, 1);
  EXPECT_THAT(frames, ElementsAre(1, 2, 3, 3));
}

TEST(LongText, AQuietWriterIsNotWaitedFor) {
  FakeEngine engine;
  Typist typist;
  typist.arrivals = {{"First sentence. Sec"}, {"", false, true}, {"ond sentence."}, {"", true}};
  LongText text(engine, request(""), {}, typist.source());
  const Spoken spoken = speak(text);
  ASSERT_EQ(engine.requests.size(), 2u);
  EXPECT_EQ(engine.requests[0].text + engine.requests[1].text, "First sentence. Second sentence.");
  EXPECT_EQ(spoken.result.pieces.size(), 2u);
}

TEST(LongText, AheadSpeaksTextWhileItArrives) {
  const std::string whole = sentences(30);
  FakeEngine engine;
  Typist typist;
  for (size_t at = 0; at < whole.size(); at += 5) typist.arrivals.push_back({whole.substr(at, 5)});
  typist.arrivals.push_back({"", true});
  SpeechRequest ahead = request("");
  ahead.layout = TextLayout::ahead;
  LongText text(engine, ahead, {}, typist.source());
  AudioChunk first = text.next_audio(1);
  EXPECT_FALSE(first.samples.empty());
  EXPECT_GT(typist.arrivals.size(), whole.size() / 5 / 2) << "audio comes before most of the text";
  speak(text);
  std::string joined;
  for (const SpeechRequest& piece : engine.requests) joined += piece.text;
  EXPECT_EQ(joined, whole);
  EXPECT_GT(engine.requests.size(), 2u);
}

TEST(LongText, AheadTextBehindTheEndOfTheSpeechIsNotSpokenHoweverItArrives) {
  const std::string whole = sentences(30);
  for (const bool split : {true, false}) {
    std::vector<float> expected;
    size_t pieces = 0;
    for (const size_t push : {whole.size(), size_t{300}, size_t{5}}) {
      FakeEngine engine;
      engine.script = [](const SpeechRequest&) {
        Script early;
        early.ends_at = 2;
        return early;
      };
      Typist typist;
      for (size_t at = 0; at < whole.size(); at += push) typist.arrivals.push_back({whole.substr(at, push)});
      typist.arrivals.push_back({"", true});
      SpeechRequest ahead = request("");
      ahead.layout = TextLayout::ahead;
      LongTextOptions options;
      options.split = split;
      LongText text(engine, ahead, options, typist.source());
      const Spoken spoken = speak(text);
      if (push == whole.size()) {
        expected = spoken.samples;
        pieces = engine.requests.size();
        EXPECT_EQ(pieces > 1, split);
      }
      EXPECT_EQ(spoken.samples, expected) << "pushes of " << push;
      EXPECT_EQ(engine.requests.size(), pieces) << "pushes of " << push;
      std::string joined;
      for (const PieceReport& piece : spoken.result.pieces) joined += piece.text;
      EXPECT_EQ(joined, whole) << "pushes of " << push;
    }
  }
}

TEST(LongText, BlankTextIsRefusedInEveryForm) {
  for (const char* blank : {"", " \n "}) {
    FakeEngine engine;
    LongText whole(engine, request(blank), {});
    failure(whole, ErrorCode::nothing_to_speak);
    for (const TextLayout layout : {TextLayout::automatic, TextLayout::ahead}) {
      Typist typist;
      typist.arrivals = {{blank}, {"", true}};
      SpeechRequest arriving_request = request("");
      arriving_request.layout = layout;
      LongText arriving(engine, arriving_request, {}, typist.source());
      failure(arriving, ErrorCode::nothing_to_speak);
    }
  }
}

TEST(LongText, ARunThatNobodySaysDoesNotFillTheRequest) {
  const std::string dashes(10'000, '-'), kept(kLongestSilentRun, '-');
  const SpeechRequest asked = request("First words.\n" + dashes + "\nSecond words.");
  const std::string expected = "First words.\n" + kept.substr(2) + "Second words.";  // '.', LF count
  const auto run = [](LongText& text, FakeEngine& engine) {
    const LongTextResult result = speak(text).result;
    std::string all;
    for (const SpeechRequest& r : engine.requests) all += r.text;
    EXPECT_THAT(result.total.warnings, ElementsAre(HasSubstr("9491 characters were left out")));
    return all;
  };
  FakeEngine whole, arriving, unsplit;
  LongText at_once(whole, asked, {});
  EXPECT_EQ(run(at_once, whole), expected);
  SpeechRequest empty = asked;
  empty.text.clear();
  size_t given = 0;
  LongText in_pieces(arriving, empty, {}, [&]() -> TextArrival {
    const size_t from = std::exchange(given, std::min(given + 700, asked.text.size()));
    return {asked.text.substr(from, given - from), given == asked.text.size(), false};
  });
  EXPECT_EQ(run(in_pieces, arriving), expected);
  LongTextOptions one;
  one.split = false;
  LongText as_it_is(unsplit, asked, one);
  EXPECT_TRUE(speak(as_it_is).result.total.warnings.empty());
  EXPECT_EQ(unsplit.requests.at(0).text, asked.text);
}

TEST(LongText, WarningsAreFoldedOverThePieces) {
  struct Warner : FakeEngine {};
  FakeEngine engine;
  SpeechRequest unseeded = request(sentences(20));
  unseeded.seed.reset();
  LongText text(engine, unseeded, {});
  const Spoken spoken = speak(text);
  EXPECT_EQ(spoken.result.total.seed, *engine.requests[0].seed) << "a drawn seed is reported";
  EXPECT_EQ(*engine.requests[1].seed, spoken.result.total.seed + 1);
  EXPECT_EQ(spoken.result.total.text_tokens, static_cast<int32_t>(5 * engine.requests.size()));
}

TEST(LongText, CleanUpAppliesToEveryPiece) {
  FakeEngine engine;
  LongTextOptions options;
  options.clean_text = true;
  LongText text(engine, request("pre\u00adrequi\u00adsite"), options);
  speak(text);
  EXPECT_EQ(engine.requests[0].text, "prerequisite");
}

}  // namespace
}  // namespace skald::engine
