// The words before cloned speech: when they are said, and what they leave alone.
#include "engine/disclaimer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/long_text.h"
#include "fake_engine.h"
#include "text/languages.h"
#include "text/utf8.h"

namespace skald::engine {
namespace {

using test::FakeEngine;
using test::Script;
using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Voice> voice(SpeakerIdentity identity, std::string language = "") {
  Voice v;
  v.name = "anna", v.identity = identity, v.language = std::move(language);
  return std::make_shared<const Voice>(std::move(v));
}

SpeechRequest cloned(std::string text, std::shared_ptr<const Voice> with = voice(SpeakerIdentity::real)) {
  SpeechRequest r;
  r.text = std::move(text), r.seed = 100, r.request_id = "id";
  r.clone = std::move(with);
  return r;
}

LongTextOptions asked() {
  LongTextOptions o;
  o.disclaimer = true;
  return o;
}

LongTextResult run(LongText& text) {
  while (!text.next_audio(2).last) {
  }
  return text.result();
}

std::vector<std::string> texts(const FakeEngine& engine) {
  std::vector<std::string> out;
  for (const SpeechRequest& r : engine.requests) out.push_back(r.text);
  return out;
}

TEST(Disclaimer, EveryLanguageHasOne) {
  std::vector<std::string> seen;
  for (const text::Language& language : text::known_languages()) {
    const std::string words(default_disclaimer(language.name));
    EXPECT_GT(text::count_code_points(words), 8u) << language.name;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), words), 0) << language.name;
    seen.push_back(words);
  }
  EXPECT_EQ(default_disclaimer("sichuan_dialect"), default_disclaimer("english"));
}

// B120: asked for, never forced.
TEST(Disclaimer, IsSaidByClonesWhereItIsAskedFor) {
  const std::string words(default_disclaimer("english"));
  const auto said = [&](SpeechRequest r, const LongTextOptions& o) {
    FakeEngine engine;
    LongText text(engine, std::move(r), o);
    run(text);
    return texts(engine);
  };
  EXPECT_THAT(said(cloned("Hello."), asked()), ElementsAre(words, "Hello."));
  EXPECT_THAT(said(cloned("Hello.", voice(SpeakerIdentity::unknown)), asked()), ElementsAre(words, "Hello."));
  EXPECT_THAT(said(cloned("Hello."), {}), ElementsAre("Hello."));
  EXPECT_THAT(said(cloned("Hello.", voice(SpeakerIdentity::synthetic)), asked()), ElementsAre("Hello."));
  EXPECT_THAT(said(cloned("Hello.", nullptr), asked()), ElementsAre("Hello."));
  SpeechRequest numbers = cloned("Hello.", nullptr);
  numbers.x_vector.assign(32, 0.5f);
  EXPECT_THAT(said(numbers, asked()), ElementsAre(words, "Hello."));
}

TEST(Disclaimer, LanguageAndWords) {
  const auto first = [](SpeechRequest r, const LongTextOptions& o) {
    FakeEngine engine;
    LongText text(engine, std::move(r), o);
    run(text);
    return std::pair(engine.requests.at(0).language, engine.requests.at(0).text);
  };
  const auto words = [](const char* language) { return std::string(default_disclaimer(language)); };
  SpeechRequest r = cloned("Hallo.");
  EXPECT_EQ(first(r, asked()), std::pair(std::string("english"), words("english")));
  r.language = "de-AT";
  EXPECT_EQ(first(r, asked()), std::pair(std::string("de-AT"), words("german")));
  r.language = "auto";
  EXPECT_EQ(first(r, asked()), std::pair(std::string("english"), words("english")));
  r = cloned("Hola.", voice(SpeakerIdentity::real, "spanish"));
  EXPECT_EQ(first(r, asked()), std::pair(std::string("spanish"), words("spanish")));
  LongTextOptions o = asked();
  o.disclaimer_language = "fr";
  EXPECT_EQ(first(r, o), std::pair(std::string("fr"), words("french")));
  o.disclaimer_text = "Attention.";
  EXPECT_EQ(first(r, o), std::pair(std::string("fr"), std::string("Attention.")));
}

TEST(Disclaimer, LeavesTheTextAsItIs) {
  const auto spoken = [](const LongTextOptions& o) {
    FakeEngine engine;
    SpeechRequest r = cloned("One sentence here. Another sentence here.");
    r.max_frames = 5;
    LongTextOptions options = o;
    options.max_piece = 20;
    LongText text(engine, r, options);
    LongTextResult result = run(text);
    if (o.disclaimer) {
      EXPECT_EQ(result.pieces.at(0).index, -1);
      EXPECT_EQ(engine.requests.at(0).request_id, "id.disclaimer");
      EXPECT_FALSE(engine.requests.at(0).max_frames);
      EXPECT_EQ(result.total.frames, 8);
      result.pieces.erase(result.pieces.begin());
      engine.requests.erase(engine.requests.begin());
    }
    EXPECT_EQ(result.total.request_id, "id");
    EXPECT_EQ(result.total.stop, StopReason::length);
    std::vector<std::tuple<std::string, std::string, uint64_t, int32_t>> seen;
    for (const SpeechRequest& q : engine.requests)
      seen.emplace_back(q.text, q.request_id, *q.seed, *q.max_frames);
    EXPECT_THAT(seen, testing::SizeIs(2));
    return seen;
  };
  EXPECT_EQ(spoken(asked()), spoken({}));
}

TEST(Disclaimer, APauseFollows) {
  FakeEngine engine;
  LongTextOptions o = asked();
  o.disclaimer_text = "no full stop", o.pause_ms = 250;
  LongText text(engine, cloned("Hello."), o);
  EXPECT_EQ(run(text).total.samples, 6 * FakeEngine::kFrame + 24 * 250);
}

TEST(Disclaimer, ComesBeforeTextThatArrives) {
  for (const TextLayout layout : {TextLayout::automatic, TextLayout::ahead}) {
    FakeEngine engine;
    SpeechRequest r = cloned("");
    r.layout = layout;
    int given = 0;
    LongText text(engine, r, asked(), [&]() -> TextArrival { return {"Some words. ", ++given == 3, false}; });
    (void)text.next_audio(1);
    EXPECT_EQ(given, 0) << "it is said while the text is waited for";
    run(text);
    EXPECT_EQ(engine.requests.at(0).text, default_disclaimer("english"));
    EXPECT_THAT(engine.requests.at(1).text, HasSubstr("Some words."));
  }
}

TEST(Disclaimer, ItsErrorsAndSecondTriesAreItsOwn) {
  FakeEngine engine;
  LongTextOptions o = asked();
  o.hold_pieces = true;
  int tries = 0;
  engine.script = [&](const SpeechRequest&) { return Script{.runaway_at = tries++ == 0 ? 1 : -1}; };
  LongText again(engine, cloned("Hello."), o);
  EXPECT_EQ(run(again).pieces.at(0).attempts, 2);
  EXPECT_EQ(*engine.requests.at(0).seed, 99u);
  EXPECT_EQ(*engine.requests.at(1).seed, 99u + kRetrySeedStep);
  engine.script = [](const SpeechRequest&) { return Script{.runaway_at = 1}; };
  LongText fails(engine, cloned("Hello."), o);
  try {
    run(fails);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::StartsWith("disclaimer: "));
  }
}

}  // namespace
}  // namespace skald::engine
