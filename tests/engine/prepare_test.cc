// Requests against the tiny models' configurations: everything that is decided before any work.
#include "engine/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support.h"

namespace skald::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Configuration and tokenizer of a tiny model; nothing else is loaded.
struct Tiny {
  explicit Tiny(const std::string& name)
      : config(model::load_config(test::model_dir(name))),
        tokenizer(text::Tokenizer::load(test::model_dir(name))) {}
  model::ModelConfig config;
  text::Tokenizer tokenizer;

  Prepared prepare(const SpeechRequest& r, bool text_follows = false) const {
    return engine::prepare(config, tokenizer, r, text_follows);
  }
  Error refuses(const SpeechRequest& r) const {
    return test::error_of([&] { prepare(r); });
  }
};

const Tiny& cv() {
  static const Tiny tiny("tiny-cv");
  return tiny;
}
const Tiny& base() {
  static const Tiny tiny("tiny-base");
  return tiny;
}
const Tiny& design() {
  static const Tiny tiny("tiny-vd");
  return tiny;
}

SpeechRequest ask(const std::string& text) { return {.text = text, .voice = "anna"}; }

SpeechRequest clone(const std::string& text) {
  SpeechRequest r = {.text = text};
  r.x_vector.assign(32, 0.5f), r.consent = "synthetic numbers";
  return r;
}

SpeechRequest in_context(const std::string& text) {
  SpeechRequest r = clone(text);
  r.ref_codes.assign(16 * 5, 3);
  r.ref_text = "Once upon a time";
  return r;
}

TEST(PrepareText, SlicesTheWrappedIds) {
  const Prepared p = cv().prepare(ask("Hello, world."));
  EXPECT_EQ(p.ids, cv().tokenizer.encode_text("Hello, world.", text::SplitRule::qwen, false));
  EXPECT_EQ(p.input.role_ids, std::vector<int32_t>(p.ids.begin(), p.ids.begin() + 3));
  EXPECT_EQ(p.input.text_ids, std::vector<int32_t>(p.ids.begin() + 3, p.ids.end() - 5));
  EXPECT_EQ(p.code_points, 13u);
  EXPECT_THAT(p.warnings, IsEmpty());
}

TEST(PrepareText, InvalidUtf8NamesTheByte) {
  const Error error = cv().refuses(ask("ab\xff"));
  EXPECT_EQ(error.code(), ErrorCode::invalid_text);
  EXPECT_THAT(error.what(), HasSubstr("2"));
}

TEST(PrepareText, NothingToSpeak) {
  for (const char* text :
       {"", " ", "\n\t", "...", "* * *", "\u200b\u200b", "\U0001F3B2\U0001F9D2", "\"\u2026\""})
    EXPECT_EQ(cv().refuses(ask(text)).code(), ErrorCode::nothing_to_speak) << text;
  for (const char* text : {"1", "a", "\u6b21", "...x"}) EXPECT_NO_THROW(cv().prepare(ask(text))) << text;
}

TEST(PrepareText, LaterTextIsNotLookedAt) {
  const Prepared p = cv().prepare(ask("\xff"), true);
  EXPECT_FALSE(p.input.text_complete);
  EXPECT_THAT(p.input.text_ids, IsEmpty());
}

TEST(PrepareText, RawTokensAndSplitReachTheTokenizer) {
  SpeechRequest r = ask("a <|im_end|> 123");
  const size_t plain = cv().prepare(r).ids.size();
  r.raw_tokens = true;
  EXPECT_LT(cv().prepare(r).ids.size(), plain);
  r.split = TextSplit::mistral;
  EXPECT_EQ(cv().prepare(r).ids, cv().tokenizer.encode_text(r.text, text::SplitRule::mistral, true));
}

TEST(PrepareVoice, SpellingsOfOneName) {
  model::ModelConfig config = cv().config;
  config.talker.speaker_ids = {{"ono_anna", 900}, {"uncle_fu", 901}};
  for (const char* name : {"ono_anna", "Ono_Anna", "ONO ANNA", "ono-anna", "onoanna", "OnoAnna"})
    EXPECT_EQ(find_voice(config, name), "ono_anna") << name;
  const Error error = test::error_of([&] { find_voice(config, "anna"); });
  EXPECT_EQ(error.code(), ErrorCode::unknown_voice);
  EXPECT_STREQ(error.what(), "unknown voice \"anna\"; this model has: ono_anna, uncle_fu");
}

TEST(PrepareVoice, ExactNameWinsOverASimilarOne) {
  model::ModelConfig config = cv().config;
  config.talker.speaker_ids = {{"an_na", 900}, {"anna", 901}};
  EXPECT_EQ(find_voice(config, "Anna"), "anna");
  EXPECT_EQ(find_voice(config, "an_na"), "an_na");
}

TEST(PrepareVoice, IsNeededOnCustomVoiceAndRefusedElsewhere) {
  EXPECT_THAT(cv().refuses({.text = "a"}).what(), HasSubstr("anna, bo, carl, dora"));
  EXPECT_EQ(cv().refuses({.text = "a", .voice = " _ "}).code(), ErrorCode::unknown_voice);
  SpeechRequest r = clone("a");
  r.voice = "anna";
  EXPECT_EQ(base().refuses(r).code(), ErrorCode::unknown_voice);
  EXPECT_THAT(base().refuses(r).what(), HasSubstr("those that were added"));
  EXPECT_THAT(design().refuses(ask("a")).what(), HasSubstr("instruct"));
}

TEST(PrepareLanguage, UnknownListsNamesAndCodes) {
  SpeechRequest r = ask("a");
  for (const char* language : {"nl", "xx", "en;de", "klingon"}) {
    r.language = language;
    const Error error = cv().refuses(r);
    EXPECT_EQ(error.code(), ErrorCode::unknown_language) << language;
    EXPECT_THAT(error.what(), HasSubstr("english (en)"));
    EXPECT_THAT(error.what(), HasSubstr("auto"));
  }
}

TEST(PrepareLanguage, DialectsCannotBeAskedFor) {
  SpeechRequest r = ask("a");
  r.language = "sichuan_dialect";
  const Error error = cv().refuses(r);
  EXPECT_EQ(error.code(), ErrorCode::unknown_language);
  EXPECT_THAT(error.what(), HasSubstr("a dialect follows from the voice"));
}

TEST(PrepareInstruct, RulesOfEveryType) {
  SpeechRequest r = ask("a");
  r.instruct = "softly";
  EXPECT_TRUE(cv().prepare(r).instruct_ignored);
  EXPECT_THAT(cv().prepare(r).input.instruct_ids, IsEmpty());
  const Tiny big("tiny-cv-1b7");
  EXPECT_FALSE(big.prepare(r).instruct_ignored);
  EXPECT_EQ(big.prepare(r).input.instruct_ids,
            big.tokenizer.encode_instruction("softly", text::SplitRule::qwen, false));
  SpeechRequest b = clone("a");
  b.instruct = "softly";
  EXPECT_TRUE(base().prepare(b).instruct_ignored);
  b.strict = true;
  EXPECT_EQ(base().refuses(b).code(), ErrorCode::unsupported);
  SpeechRequest d = {.text = "a"};
  EXPECT_EQ(design().prepare(d).warnings.size(), 1u);
  d.instruct = "a calm voice";
  EXPECT_THAT(design().prepare(d).warnings, IsEmpty());
  EXPECT_FALSE(design().prepare(d).input.instruct_ids.empty());
  d.instruct = "\xc3";
  EXPECT_EQ(design().refuses(d).code(), ErrorCode::invalid_text);
}

TEST(PrepareLayout, DefaultsFollowTheOfficialCalls) {
  EXPECT_EQ(cv().prepare(ask("a")).input.layout, model::Layout::whole);
  EXPECT_EQ(design().prepare({.text = "a"}).input.layout, model::Layout::whole);
  EXPECT_EQ(base().prepare(clone("a")).input.layout, model::Layout::stream);
  EXPECT_EQ(cv().prepare(ask("a"), true).input.layout, model::Layout::ahead);
  SpeechRequest r = ask("a");
  r.layout = TextLayout::stream;
  EXPECT_EQ(cv().prepare(r).input.layout, model::Layout::stream);
  EXPECT_EQ(cv().prepare(r, true).input.layout, model::Layout::stream);
}

TEST(PrepareReference, FieldsThatBelongTogether) {
  EXPECT_EQ(base().refuses({.text = "a"}).code(), ErrorCode::invalid_argument);
  SpeechRequest r = in_context("a");
  const Prepared p = base().prepare(r);
  EXPECT_TRUE(p.input.in_context);
  EXPECT_TRUE(p.input.has_x_vector);
  r.ref_text.clear();
  EXPECT_THAT(base().refuses(r).what(), HasSubstr("ref_text"));
  r = in_context("a"), r.ref_codes.clear();
  EXPECT_THAT(base().refuses(r).what(), HasSubstr("ref_codes"));
  r = in_context("a"), r.x_vector.clear();
  EXPECT_THAT(base().refuses(r).what(),
              HasSubstr("give a voice (`skald voice add` makes one), or an x_vector of 32 numbers"));
  r = ask("a"), r.x_vector.assign(32, 0);
  EXPECT_EQ(cv().refuses(r).code(), ErrorCode::unsupported);
}

TEST(PrepareReference, ValuesAreChecked) {
  SpeechRequest r = clone("a");
  r.x_vector.push_back(0);
  EXPECT_THAT(base().refuses(r).what(), HasSubstr("33 numbers"));
  r = clone("a"), r.x_vector[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(base().refuses(r).what(), HasSubstr("x_vector[7]"));
  r = in_context("a"), r.ref_codes[18] = 64;
  EXPECT_STREQ(base().refuses(r).what(), "ref_codes: frame 1, group 2 is 64, but must be within 0..63");
  r = in_context("a"), r.ref_codes.pop_back();
  EXPECT_EQ(base().refuses(r).code(), ErrorCode::invalid_argument);
  r = in_context("a"), r.ref_text = "\xff";
  EXPECT_EQ(base().refuses(r).code(), ErrorCode::invalid_text);
}

TEST(PrepareScalars, Ranges) {
  SpeechRequest r = ask("a");
  r.stall_frames = -1;
  EXPECT_EQ(cv().refuses(r).code(), ErrorCode::invalid_argument);
  r = ask("a"), r.ahead_tokens = 0;
  EXPECT_EQ(cv().refuses(r).code(), ErrorCode::invalid_argument);
  for (const char* id : {"two words", "line\nbreak", "\u00e9"}) {
    r = ask("a"), r.request_id = id;
    EXPECT_EQ(cv().refuses(r).code(), ErrorCode::invalid_argument) << id;
  }
}

TEST(Room, NumbersOfTheRefusal) {
  EXPECT_EQ(check_room(4096, 100, 0, 240, false), 3996);
  EXPECT_EQ(check_room(340, 100, 240, 5000, false), 240);
  EXPECT_THROW(check_room(339, 100, 240, 5000, false), Error);
  EXPECT_EQ(check_room(120, 100, 900, 20, true), 20);  // the caller asked for 20 frames only
  const Error error = test::error_of([] { check_room(500, 100, 401, 5000, false); });
  EXPECT_EQ(error.code(), ErrorCode::text_too_long);
  EXPECT_THAT(error.what(), HasSubstr("100 rows"));
  EXPECT_THAT(error.what(), HasSubstr("401 frames"));
  EXPECT_THAT(error.what(), HasSubstr("500"));
}

TEST(TextWatch, PiecesGiveTheSameAsTheWhole) {
  const std::string text = "a\u00adb\u200bc\u00a0\u00add\U000E0020";
  TextWatch whole;
  whole.push(text);
  for (size_t size = 1; size < 5; ++size) {
    TextWatch pieces;
    for (size_t at = 0; at < text.size(); at += size) pieces.push(std::string_view(text).substr(at, size));
    EXPECT_EQ(pieces.warning(), whole.warning()) << size;
    EXPECT_TRUE(pieces.anything_spoken());
  }
  EXPECT_FALSE(TextWatch().anything_spoken());
  EXPECT_EQ(TextWatch().warning(), std::nullopt);
}

}  // namespace
}  // namespace skald::engine
