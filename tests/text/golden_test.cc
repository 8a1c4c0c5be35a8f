// Ids of the official tokenizer for the real vocabulary, both split expressions, templates included.
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/incremental.h"
#include "text_fixture.h"

namespace skald::text {
namespace {

using Ids = std::vector<int32_t>;

std::filesystem::path g_vocabulary = fixture_dir() / "vocabulary";  // or --tokenizer=DIR

const Tokenizer& tokenizer() {
  static const Tokenizer instance = Tokenizer::load(g_vocabulary);
  return instance;
}

std::vector<nlohmann::json> lines_of(const char* name) {
  std::istringstream in(read_bytes(fixture_dir() / name));
  std::vector<nlohmann::json> entries;
  for (std::string line; std::getline(in, line);) entries.push_back(nlohmann::json::parse(line));
  return entries;
}

/// The mistral ids are stored only where they differ.
Ids expected(const nlohmann::json& entry, SplitRule rule, const std::string& prefix = {}) {
  const std::string key = prefix + (rule == SplitRule::mistral ? "mistral" : "qwen");
  return entry.contains(key) ? entry.at(key).get<Ids>() : entry.at(prefix + "qwen").get<Ids>();
}

TEST(Golden, TextsOfEveryScript) {
  const auto entries = lines_of("goldens.jsonl");
  ASSERT_GE(entries.size(), 300u);
  size_t differing = 0;
  for (const auto& entry : entries) {
    const auto text = entry.at("text").get<std::string>();
    for (const SplitRule rule : kRules) {
      EXPECT_EQ(tokenizer().encode(text, rule, true), expected(entry, rule)) << entry.at("text").dump();
    }
    differing += entry.contains("mistral");
  }
  EXPECT_GE(differing, 40u);  // else the second expression would hardly be tested
}

TEST(Golden, WrappedTemplates) {
  for (const auto& entry : lines_of("wrapped.jsonl")) {
    const auto text = entry.at("text").get<std::string>();
    const auto kind = entry.at("kind").get<std::string>();
    for (const SplitRule rule : kRules) {
      for (const bool raw : {true, false}) {
        const Ids ids = kind == "text"        ? tokenizer().encode_text(text, rule, raw)
                        : kind == "reference" ? tokenizer().encode_reference(text, rule, raw)
                                              : tokenizer().encode_instruction(text, rule, raw);
        EXPECT_EQ(ids, expected(entry, rule, raw ? "" : "plain_"))
            << kind << ' ' << entry.at("text").dump() << raw;
      }
    }
  }
}

TEST(Golden, PublishedCheckValue) {  // model-spec 2.6
  const Ids ids{151644, 77091, 198, 9707, 13, 151645, 198, 151644, 77091, 198};
  EXPECT_EQ(tokenizer().encode_text("Hello.", SplitRule::qwen, true), ids);
  EXPECT_EQ(tokenizer().encode_text("Hello.", SplitRule::qwen, false), ids);
}

TEST(Golden, LineFeedsFuseWithTheTemplate) {  // model-spec 2.5, 18
  const Ids ids = tokenizer().encode_text("\n\nstart", SplitRule::qwen, true);
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + 4), (Ids{151644, 77091, 1406, 2468}));
}

TEST(Golden, TheTwoExpressionsOnCamelCase) {  // model-spec 2.2
  const char* const text = "Call getUserName() now";
  EXPECT_EQ(tokenizer().encode(text, SplitRule::qwen, false), (Ids{7220, 633, 18856, 368, 1431}));
  EXPECT_EQ(tokenizer().encode(text, SplitRule::mistral, false), (Ids{7220, 633, 1474, 675, 368, 1431}));
}

TEST(Golden, IncrementalReachesTheSameIds) {
  for (const auto& entry : lines_of("wrapped.jsonl")) {
    if (entry.at("kind") != "text") continue;
    const auto text = entry.at("text").get<std::string>();
    for (const SplitRule rule : kRules) {
      for (const bool raw : {true, false}) {
        IncrementalTokenizer stream(tokenizer(), rule, raw);
        for (const char byte : text) stream.push({&byte, 1});
        stream.finish();
        const Ids whole = expected(entry, rule, raw ? "" : "plain_");
        EXPECT_EQ(stream.ids(), Ids(whole.begin() + kTextHead, whole.end() - kTextTail))
            << entry.at("text").dump();
      }
    }
  }
}

TEST(Golden, VocabularySizeAndLookUp) {
  EXPECT_EQ(tokenizer().vocabulary_size(), 151676u);
  EXPECT_EQ(tokenizer().token_id("assistant"), 77091);
  EXPECT_EQ(tokenizer().token_id("<tts_pad>"), 151671);
  EXPECT_EQ(tokenizer().token_id("no such token here"), std::nullopt);
  EXPECT_EQ(tokenizer().token_bytes(198), "\n");
  EXPECT_EQ(tokenizer().token_bytes(151645), "<|im_end|>");
  EXPECT_EQ(tokenizer().token_bytes(-1), "");
  EXPECT_EQ(tokenizer().token_bytes(1 << 30), "");
}

}  // namespace
}  // namespace skald::text

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kOption = "--tokenizer=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kOption)) {
      std::cerr << "unknown argument " << argument << "; known is --tokenizer=DIR\n";
      return 2;
    }
    skald::text::g_vocabulary = argument.substr(kOption.size());
  }
  return RUN_ALL_TESTS();
}
