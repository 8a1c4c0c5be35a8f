// What users reported of comparable systems, tried here: voices, languages, instructions, text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <random>

#include "engine/prepare.h"
#include "support.h"
#include "text/utf8.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool operator==(const PromptRowInfo& a, const PromptRowInfo& b) {
  return a.text_id == b.text_id && a.codec_ids == b.codec_ids && a.speaker == b.speaker;
}

/// Rows of two prompts that differ.
std::vector<size_t> differing_rows(const PromptInfo& a, const PromptInfo& b) {
  EXPECT_EQ(a.rows.size(), b.rows.size());
  std::vector<size_t> out;
  for (size_t i = 0; i < std::min(a.rows.size(), b.rows.size()); ++i)
    if (!(a.rows[i] == b.rows[i])) out.push_back(i);
  return out;
}

bool same_rows(const PromptInfo& a, const PromptInfo& b) {
  return a.rows.size() == b.rows.size() && differing_rows(a, b).empty() && a.trailing == b.trailing;
}

/// Codec rows of block A before the speaker row.
constexpr size_t kRoleRows = 3;

// B006: whatever the text, the answer is audio or an error of the text; the process lives.
TEST(Reports, B006_AnyTextIsSpokenOrRefused) {
  std::mt19937 random(1);
  const auto code_point = [&]() -> char32_t {
    switch (random() % 7) {
      case 0: return 0x20 + random() % 0x5F;
      case 1: return 0x1F300 + random() % 0x400;  // pictographs
      case 2: return 0xE000 + random() % 0x1900;  // private use
      case 3: return 0x4E00 + random() % 0x5000;
      case 4: return 0x300 + random() % 0x70;  // marks
      case 5: return random() % 0x20;
      default: return 0x80 + random() % 0xD700;
    }
  };
  Engine& engine = tiny("tiny-cv");
  int spoken = 0, refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text::append_utf8(text, code_point());
    SpeechRequest r = simple(text, 2);
    r.raw_tokens = i % 2 == 0;
    if (i % 10 == 9) r.text += static_cast<char>(0x80 + random() % 0x80);
    try {
      spoken += speak(engine, r).result.frames > 0;
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.code(), ::testing::AnyOf(ErrorCode::nothing_to_speak, ErrorCode::invalid_text))
          << e.what();
    }
  }
  EXPECT_GT(spoken, 50);
  EXPECT_GT(refused, 5);
}

// B011: rows follow from the numbers of tokens, in every script.
TEST(Reports, B011_RowsOfAnInContextClone) {
  const auto core = tiny_core("tiny-base");
  const std::vector<std::string> texts = {"Hello there.", "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
                                          "\U0001F44B hi \U0001F3FD", "mixed \u4f60\u597d text",
                                          "\u0928\u092e\u0938\u094d\u0924\u0947"};
  const auto tokens = [&](const std::string& text) {
    return core->tokenizer.encode_text(text, text::SplitRule::qwen, false).size() - 8;
  };
  for (const std::string& ref : texts) {
    for (const std::string& text : texts) {
      for (const size_t frames : {3u, 40u}) {
        SpeechRequest r = {.text = text};
        r.language = "chinese", r.ref_text = ref;
        r.x_vector.assign(32, 0.1f), r.consent = "synthetic numbers", r.ref_codes.assign(frames * 16, 1);
        const size_t a = 3 + 6, x = tokens(ref) + tokens(text) + 1, y = 1 + frames;
        r.layout = TextLayout::stream;
        EXPECT_EQ(tiny("tiny-base").prompt(r).rows.size(), a + y);
        EXPECT_EQ(tiny("tiny-base").prompt(r).trailing.size(), x > y ? x - y : 0);
        r.layout = TextLayout::whole;
        EXPECT_EQ(tiny("tiny-base").prompt(r).rows.size(), a + x + y);
      }
    }
  }
}

// B012: an instruction that the model ignores is never ignored in silence.
TEST(Reports, B012_InstructOnTheSmallModel) {
  SpeechRequest r = simple("Hello", 2);
  r.instruct = "Speak slowly.";
  const Outcome out = speak(tiny("tiny-cv"), r);
  EXPECT_TRUE(out.result.instruct_ignored);
  ASSERT_FALSE(out.result.warnings.empty());
  EXPECT_THAT(out.result.warnings[0], HasSubstr("instruct is ignored"));
  EXPECT_FALSE(tiny("tiny-cv").info().takes_instruct);
  r.strict = true;
  EXPECT_EQ(error_of([&] { tiny("tiny-cv").start_stream(r); }).code(), ErrorCode::unsupported);

  const std::vector<int32_t> ids =
      tiny_core("tiny-cv-1b7")->tokenizer.encode_instruction(r.instruct, text::SplitRule::qwen, false);
  const PromptInfo big = tiny("tiny-cv-1b7").prompt(r);
  ASSERT_GT(big.rows.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(big.rows[i].text_id, ids[i]);
    EXPECT_THAT(big.rows[i].codec_ids, IsEmpty());
  }
  EXPECT_FALSE(speak(tiny("tiny-cv-1b7"), r).result.instruct_ignored);
}

// B013: a voice that cannot be is an error, never another voice.
TEST(Reports, B013_VoiceOnAModelWithoutVoices) {
  SpeechRequest r = simple("Hello");
  r.x_vector.assign(32, 0.1f), r.consent = "synthetic numbers";
  EXPECT_EQ(error_of([&] { tiny("tiny-base").start_stream(r); }).code(), ErrorCode::unknown_voice);
  EXPECT_EQ(error_of([&] { tiny("tiny-vd").start_stream(simple("Hello")); }).code(),
            ErrorCode::unknown_voice);
  model::ModelConfig config = tiny_core("tiny-cv")->config();
  config.talker.speaker_ids.clear();
  const Error error = error_of([&] { engine::find_voice(config, "anna"); });
  EXPECT_EQ(error.code(), ErrorCode::unknown_voice);
  EXPECT_THAT(error.what(), HasSubstr("spk_id"));
}

TEST(Reports, B013_EveryVoiceIsAnotherOne) {
  std::vector<std::vector<int32_t>> codes;
  for (const std::string& voice : tiny("tiny-cv").info().voices) {
    SpeechRequest r = simple("Hello there", 8);
    r.voice = voice;
    codes.push_back(speak(tiny("tiny-cv"), r).codes);
  }
  ASSERT_EQ(codes.size(), 4u);
  std::sort(codes.begin(), codes.end());
  EXPECT_EQ(std::unique(codes.begin(), codes.end()), codes.end());
}

// B014: every listed name in any case; the list in the error.
TEST(Reports, B014_ListedVoicesAreAccepted) {
  Engine& engine = tiny("tiny-cv");
  for (const std::string& name : engine.info().voices) {
    SpeechRequest r = simple("Hello");
    r.voice = name;
    const PromptInfo expected = engine.prompt(r);
    std::string upper = name, title = name;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    title[0] = upper[0];
    for (const std::string& spelling : {upper, title}) {
      r.voice = spelling;
      EXPECT_TRUE(same_rows(engine.prompt(r), expected)) << spelling;
    }
  }
  SpeechRequest r = simple("Hello");
  r.voice = "Nobody";
  const Error error = error_of([&] { engine.start_stream(r); });
  EXPECT_EQ(error.code(), ErrorCode::unknown_voice);
  for (const std::string& name : engine.info().voices) EXPECT_THAT(error.what(), HasSubstr(name));
}

// B016: a language changes exactly its own row; a model without a table says so and speaks.
TEST(Reports, B016_LanguageReachesThePrompt) {
  SpeechRequest english = simple("Hello"), german = simple("Hello");
  english.language = "english", german.language = "de";
  const PromptInfo a = tiny("tiny-cv").prompt(english), b = tiny("tiny-cv").prompt(german);
  EXPECT_EQ(differing_rows(a, b), std::vector<size_t>{kRoleRows + 2});
  EXPECT_EQ(b.rows[kRoleRows + 2].codec_ids, std::vector<int32_t>{73});

  const auto core = tiny_core("tiny-cv");
  model::ModelConfig config = core->config();
  config.talker.language_ids.clear(), config.talker.speaker_dialect.clear();
  const engine::Prepared p = engine::prepare(config, core->tokenizer, german, false);
  EXPECT_EQ(p.input.language_id, -1);
  ASSERT_EQ(p.warnings.size(), 1u);
  EXPECT_THAT(p.warnings[0], HasSubstr("language table is empty"));
  german.strict = true;
  EXPECT_EQ(error_of([&] { engine::prepare(config, core->tokenizer, german, false); }).code(),
            ErrorCode::unsupported);
}

// B017: dialects follow the speaker when the language is Chinese or automatic.
TEST(Reports, B017_DialectOfTheSpeaker) {
  const auto language = [](const std::string& voice, const std::string& spelling) {
    SpeechRequest r = simple("Hello");
    r.voice = voice, r.language = spelling;
    return tiny("tiny-cv").prompt(r).language;
  };
  EXPECT_EQ(language("bo", "auto"), "sichuan_dialect");
  EXPECT_EQ(language("bo", ""), "sichuan_dialect");
  EXPECT_EQ(language("bo", "Chinese"), "sichuan_dialect");
  EXPECT_EQ(language("bo", "english"), "english");
  EXPECT_EQ(language("dora", "auto"), "beijing_dialect");
  EXPECT_EQ(language("dora", "zh"), "beijing_dialect");
  EXPECT_EQ(language("dora", "de"), "german");
  EXPECT_EQ(language("anna", "auto"), "auto");
  EXPECT_EQ(language("anna", "chinese"), "chinese");
}

// B059: what conditions the voice does not depend on the text of a piece.
TEST(Reports, B059_ConditioningRowsOfEveryPieceAreTheSame) {
  SpeechRequest r = simple("One thing,");
  const PromptInfo first = tiny("tiny-cv").prompt(r);
  r.text = "and quite another one.";
  const PromptInfo second = tiny("tiny-cv").prompt(r);
  for (size_t i = 0; i < kRoleRows + 6; ++i) EXPECT_TRUE(first.rows[i] == second.rows[i]) << i;
}

/// All text ids of a prompt in order: those in the rows, then the trailing ones; without template and control
/// ids.
std::vector<int32_t> spoken_ids(const PromptInfo& info, const model::ModelConfig& config) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < info.rows.size(); ++i)
    if (i >= kRoleRows) ids.push_back(info.rows[i].text_id);
  ids.insert(ids.end(), info.trailing.begin(), info.trailing.end());
  std::erase_if(ids, [&](int32_t id) {
    return id == config.tts_pad_id || id == config.tts_bos_id || id == config.tts_eos_id;
  });
  return ids;
}

// B074: one request holds all of its text or is refused; nothing is cut in silence.
TEST(Reports, B074_AHundredSentencesStayWhole) {
  SpeechRequest r = simple("");
  for (int i = 0; i < 100; ++i) r.text += "Sentence number " + std::to_string(i) + ". ";
  for (const TextLayout layout : {TextLayout::whole, TextLayout::stream, TextLayout::ahead}) {
    r.layout = layout;
    const PromptInfo info = tiny("tiny-cv").prompt(r);
    EXPECT_EQ(spoken_ids(info, tiny_core("tiny-cv")->config()),
              std::vector<int32_t>(info.ids.begin() + 3, info.ids.end() - 5));
  }
  r.max_frames.reset();
  for (int i = 0; i < 400; ++i) r.text += "And one sentence more. ";
  for (const TextLayout layout : {TextLayout::whole, TextLayout::stream, TextLayout::ahead}) {
    r.layout = layout;
    EXPECT_EQ(error_of([&] { tiny("tiny-cv").start_stream(r); }).code(), ErrorCode::text_too_long);
  }
}

// B075: a clone streams its text by default, as the official call does, and the other form can be chosen.
TEST(Reports, B075_PromptFormOfAClone) {
  SpeechRequest r = {.text = "Hello there, how are you?"};
  r.x_vector.assign(32, 0.1f), r.consent = "synthetic numbers";
  const PromptInfo by_default = tiny("tiny-base").prompt(r);
  r.layout = TextLayout::stream;
  EXPECT_TRUE(same_rows(tiny("tiny-base").prompt(r), by_default));
  r.layout = TextLayout::whole;
  const PromptInfo whole = tiny("tiny-base").prompt(r);
  EXPECT_THAT(whole.trailing, IsEmpty());
  EXPECT_EQ(whole.rows.size(), by_default.rows.size() + whole.ids.size() - 8 + 1);
}

// C004: invisible characters stay in the ids, but are reported.
TEST(Reports, C004_InvisibleCharacters) {
  const std::pair<const char*, const char*> texts[] = {{"pre\u00adrequi\u00adsite", "U+00AD soft hyphen (2)"},
                                                       {"12:00\u202fAM", "U+202F"},
                                                       {"a\u00a0b", "U+00A0"},
                                                       {"one\u200btwo", "U+200B"},
                                                       {"a\ufeffb", "U+FEFF"},
                                                       {"\u202bab\u202c", "U+202B"},
                                                       {"\u2067ab\u2069", "U+2069"}};
  for (const auto& [text, found] : texts) {
    const PromptInfo info = tiny("tiny-cv").prompt(simple(text));
    ASSERT_EQ(info.warnings.size(), 1u) << text;
    EXPECT_THAT(info.warnings[0], HasSubstr(found));
    EXPECT_EQ(info.ids, tiny_core("tiny-cv")->tokenizer.encode_text(text, text::SplitRule::qwen, false));
  }
  EXPECT_THAT(tiny("tiny-cv").prompt(simple("a \u4f60 b")).warnings, IsEmpty());
  for (const char* text : {"\"\u2026\"", "\U0001F3B2\U0001F9D2", "* * *", "\u200b\u200b", ""}) {
    EXPECT_EQ(error_of([&] { tiny("tiny-cv").start_stream(simple(text)); }).code(),
              ErrorCode::nothing_to_speak);
    const Outcome pieces = speak_pieces(tiny("tiny-cv"), simple(""), {text});
    ASSERT_TRUE(pieces.error);
    EXPECT_EQ(pieces.error->code(), ErrorCode::nothing_to_speak);
  }
}

// C006: all spellings of one language give the same rows.
TEST(Reports, C006_LanguagesAsClientsSpellThem) {
  const auto rows = [](const std::string& language) {
    SpeechRequest r = simple("Hello");
    r.language = language;
    return tiny("tiny-cv").prompt(r);
  };
  for (const char* spelling : {"en", "EN", "en-US", "en_GB", "eng", "English"})
    EXPECT_TRUE(same_rows(rows(spelling), rows("english"))) << spelling;
  for (const char* spelling : {"zh", "zh-CN", "zh-Hans-CN", "cmn"})
    EXPECT_TRUE(same_rows(rows(spelling), rows("chinese"))) << spelling;
  for (const char* spelling : {"", "null", "Auto"})
    EXPECT_TRUE(same_rows(rows(spelling), rows("auto"))) << spelling;
  EXPECT_FALSE(same_rows(rows("auto"), rows("english")));
  for (const char* spelling : {"nl", "xx", "en;de"}) {
    const Error error = error_of([&] { rows(spelling); });
    EXPECT_EQ(error.code(), ErrorCode::unknown_language);
    EXPECT_THAT(error.what(), HasSubstr("chinese (zh)"));
  }
}

}  // namespace
}  // namespace skald::test
