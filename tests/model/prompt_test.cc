// Prompt rows against the worked example of the specification (4.7) and its row counts (4.3).
#include "model/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "skald/error.h"

namespace skald::model {
namespace {

using ::testing::ElementsAre;

constexpr int kPad = 151671, kBos = 151672, kEos = 151673, kImEnd = 151645, kLang = 2050, kSpeaker = 3061;

ModelConfig published() {
  ModelConfig c;
  c.im_end_id = kImEnd, c.tts_pad_id = kPad, c.tts_bos_id = kBos, c.tts_eos_id = kEos;
  TalkerConfig& t = c.talker;
  t.vocab_size = 3072, t.num_code_groups = 16;
  t.codec_pad_id = 2148, t.codec_bos_id = 2149, t.codec_eos_id = 2150;
  t.codec_think_id = 2154, t.codec_nothink_id = 2155, t.codec_think_bos_id = 2156,
  t.codec_think_eos_id = 2157;
  t.language_ids = {
      {"english", 2050}, {"chinese", 2055}, {"sichuan_dialect", 2062}, {"beijing_dialect", 2074}};
  t.speaker_ids = {{"ryan", 3061}, {"eric", 2875}, {"dylan", 2878}};
  t.speaker_dialect = {{"eric", "sichuan_dialect"}, {"dylan", "beijing_dialect"}};
  return c;
}

PromptInput hello() {
  PromptInput in;
  in.role_ids = {151644, 77091, 198};
  in.text_ids = {9707, 13};
  return in;
}

/// Rows as "text+codec", one string each: short to compare with the tables.
std::vector<std::string> print(const Prompt& p) {
  std::vector<std::string> out;
  for (const PromptRow& row : p.rows) {
    std::string s = std::to_string(row.text_id);
    if (row.speaker_vector) s += "+xvec";
    if (row.codec_ids.size() == 1) s += "+" + std::to_string(row.codec_ids[0]);
    if (row.codec_ids.size() > 1) s += "+F" + std::to_string(row.codec_ids[1]);
    out.push_back(s);
  }
  return out;
}

TEST(Prompt, StreamCustomVoiceWithLanguage) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.layout = Layout::stream, in.language_id = kLang, in.speaker_id = kSpeaker;
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(print(p), ElementsAre("151644", "77091", "198", "151671+2154", "151671+2156", "151671+2050",
                                    "151671+2157", "151671+3061", "151672+2148", "9707+2149"));
  EXPECT_THAT(trailing_ids(c, in, p), ElementsAre(13, kEos));
}

TEST(Prompt, StreamVoiceDesignAutoHasEightRows) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.layout = Layout::stream;
  EXPECT_THAT(print(build_prompt(c, in)), ElementsAre("151644", "77091", "198", "151671+2155", "151671+2156",
                                                      "151671+2157", "151672+2148", "9707+2149"));
}

TEST(Prompt, WholeCustomVoiceWithInstruction) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.instruct_ids = {1, 2, 3}, in.language_id = kLang, in.speaker_id = kSpeaker;
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(print(p), ElementsAre("1", "2", "3", "151644", "77091", "198", "151671+2154", "151671+2156",
                                    "151671+2050", "151671+2157", "151671+3061", "151672+2148", "9707+2148",
                                    "13+2148", "151673+2148", "151671+2149"));
  EXPECT_TRUE(trailing_ids(c, in, p).empty());
}

TEST(Prompt, XVectorRowStandsWhereTheSpeakerStands) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.layout = Layout::stream, in.has_x_vector = true;
  EXPECT_THAT(print(build_prompt(c, in)),
              ElementsAre("151644", "77091", "198", "151671+2155", "151671+2156", "151671+2157",
                          "151671+xvec", "151672+2148", "9707+2149"));
}

TEST(Prompt, EmptyTextUsesTheClosingTokenInTheStreamLayout) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.text_ids.clear(), in.layout = Layout::stream;
  const Prompt p = build_prompt(c, in);
  EXPECT_EQ(p.rows.back().text_id, kImEnd);
  EXPECT_THAT(trailing_ids(c, in, p), ElementsAre(kEos));
}

/// Reference frame k carries code 100 + k in group 1, printed as F(100 + k).
PromptInput in_context(int frames) {
  PromptInput in = hello();
  in.layout = Layout::stream, in.language_id = kLang, in.has_x_vector = true, in.in_context = true;
  in.ref_text_ids = {1, 2, 3};
  for (int k = 0; k < frames; ++k)
    for (int g = 0; g < 16; ++g) in.ref_codes.push_back(g == 1 ? 100 + k : 0);
  return in;
}

std::vector<std::string> block_b(const Prompt& p) {
  const std::vector<std::string> all = print(p);
  return {all.begin() + 9, all.end()};
}

TEST(Prompt, InContextStreamWithShortReference) {
  const ModelConfig c = published();
  const PromptInput in = in_context(3);
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(block_b(p), ElementsAre("1+2149", "2+F100", "3+F101", "9707+F102"));
  EXPECT_THAT(trailing_ids(c, in, p), ElementsAre(13, kEos));
}

TEST(Prompt, InContextStreamWithLongReference) {
  const ModelConfig c = published();
  const PromptInput in = in_context(7);
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(block_b(p), ElementsAre("1+2149", "2+F100", "3+F101", "9707+F102", "13+F103", "151673+F104",
                                      "151671+F105", "151671+F106"));
  EXPECT_TRUE(trailing_ids(c, in, p).empty());
}

TEST(Prompt, InContextStreamWithReferenceTextLongerThanItsCodes) {
  const ModelConfig c = published();
  const PromptInput in = in_context(1);
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(block_b(p), ElementsAre("1+2149", "2+F100"));
  EXPECT_THAT(trailing_ids(c, in, p), ElementsAre(3, 9707, 13, kEos));
}

TEST(Prompt, InContextWhole) {
  const ModelConfig c = published();
  PromptInput in = in_context(3);
  in.layout = Layout::whole;
  const Prompt p = build_prompt(c, in);
  EXPECT_THAT(block_b(p), ElementsAre("1+2148", "2+2148", "3+2148", "9707+2148", "13+2148", "151673+2148",
                                      "151671+2149", "151671+F100", "151671+F101", "151671+F102"));
  EXPECT_TRUE(trailing_ids(c, in, p).empty());
}

TEST(Prompt, AheadLiesBetweenStreamAndWhole) {
  const ModelConfig c = published();
  PromptInput in = hello();
  in.text_ids.resize(20);
  std::iota(in.text_ids.begin(), in.text_ids.end(), 500);
  auto rows_of = [&](Layout layout, int ahead) {
    in.layout = layout, in.ahead_tokens = ahead;
    return print(build_prompt(c, in));
  };
  EXPECT_EQ(rows_of(Layout::ahead, 0), rows_of(Layout::stream, 0));
  EXPECT_EQ(rows_of(Layout::ahead, 20), rows_of(Layout::whole, 0));
  const std::vector<std::string> eight = rows_of(Layout::ahead, 8);
  EXPECT_EQ(eight[eight.size() - 2], "507+2148");
  EXPECT_EQ(eight.back(), "508+2149");
}

TEST(Prompt, AnyKnownPrefixThatSufficesGivesTheRowsOfTheWholeText) {
  const ModelConfig c = published();
  for (PromptInput in : {hello(), in_context(3), in_context(9)}) {
    in.text_ids.resize(30);
    std::iota(in.text_ids.begin(), in.text_ids.end(), 500);
    for (Layout layout : {Layout::stream, Layout::ahead}) {
      in.layout = layout;
      const std::vector<std::string> all = print(build_prompt(c, in));
      const std::vector<int32_t> all_trailing = trailing_ids(c, in, build_prompt(c, in));
      PromptInput part = in;
      part.text_complete = false;
      part.text_ids.resize(text_tokens_needed(in, 16));
      const Prompt p = build_prompt(c, part);
      EXPECT_EQ(print(p), all);
      std::vector<int32_t> trailing = trailing_ids(c, part, p);
      trailing.insert(trailing.end(), in.text_ids.begin() + part.text_ids.size(), in.text_ids.end());
      trailing.push_back(kEos);
      EXPECT_EQ(trailing, all_trailing);
      if (part.text_ids.empty()) continue;
      part.text_ids.pop_back();
      EXPECT_THROW(build_prompt(c, part), Error);
    }
  }
}

TEST(Prompt, B017_EffectiveLanguageFollowsTheDialectTable) {
  const ModelConfig c = published();
  EXPECT_EQ(effective_language(c, "auto", ""), -1);
  EXPECT_EQ(effective_language(c, "auto", "ryan"), -1);
  EXPECT_EQ(effective_language(c, "auto", "eric"), 2062);
  EXPECT_EQ(effective_language(c, "auto", "dylan"), 2074);
  EXPECT_EQ(effective_language(c, "chinese", "eric"), 2062);
  EXPECT_EQ(effective_language(c, "chinese", "ryan"), 2055);
  EXPECT_EQ(effective_language(c, "english", "eric"), 2050);
}

}  // namespace
}  // namespace skald::model
