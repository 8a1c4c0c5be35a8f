// The push tokenizer: equal to the one-shot one for every split, never releasing what later text could
// change.
#include "text/incremental.h"

#include "text_fixture.h"

namespace skald::text {
namespace {

using Ids = std::vector<int32_t>;

Ids whole_text(std::string_view text, SplitRule rule, bool raw) {
  const Ids ids = fixture_tokenizer().encode_text(text, rule, raw);
  return Ids(ids.begin() + kTextHead, ids.end() - kTextTail);
}

bool is_prefix(const Ids& prefix, const Ids& ids) {
  return prefix.size() <= ids.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
}

/// Pushes the text cut at the given places and checks every state on the way.
void check_split(const std::string& text, const std::vector<size_t>& cuts, SplitRule rule, bool raw,
                 const Ids& expected) {
  IncrementalTokenizer stream(fixture_tokenizer(), rule, raw);
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    stream.push(std::string_view(text).substr(begin, end - begin));
    ASSERT_TRUE(is_prefix(stream.ids(), expected)) << text << " after byte " << end;
    begin = end;
  }
  stream.finish();
  ASSERT_EQ(stream.ids(), expected) << text << " raw " << raw;
  EXPECT_EQ(stream.code_points(), count_code_points(text));
}

TEST(Incremental, RandomSplitsOfAThousandTexts) {
  std::mt19937 rng(5);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_text(rng, 60);
    for (const SplitRule rule : kRules) {
      for (const bool raw : {false, true}) {
        const Ids expected = whole_text(text, rule, raw);
        for (int round = 0; round < 3; ++round) {
          std::vector<size_t> cuts;
          const unsigned step = 1 + rng() % 12;
          for (size_t at = rng() % step; at < text.size(); at += 1 + rng() % step) cuts.push_back(at);
          check_split(text, cuts, rule, raw, expected);
        }
      }
    }
  }
}

TEST(Incremental, EverySplitOfShortTexts) {
  const std::vector<std::string> texts{"don't I",    "a  b\n",    "\n\nab",    "e\u0301 \u0301x",
                                       "가\u11a8 x", "'ll'LL",    "<t<think>", "x<tts_",
                                       "né.\r\n/",   "12. ab",    "ก\u0e34 A", " \u00a0 \n x",
                                       "iPh oN",     "<\u0338 =", "😀\u200d😀",  "<|im_end|>"};
  for (const std::string& text : texts) {
    ASSERT_LE(text.size(), 12u);
    for (const SplitRule rule : kRules) {
      for (const bool raw : {false, true}) {
        const Ids expected = whole_text(text, rule, raw);
        for (unsigned mask = 0; mask < 1u << (text.size() - 1); ++mask) {
          std::vector<size_t> cuts;
          for (size_t at = 1; at < text.size(); ++at) {
            if (mask >> (at - 1) & 1) cuts.push_back(at);
          }
          check_split(text, cuts, rule, raw, expected);
        }
      }
    }
  }
}

TEST(Incremental, ReleasedIdsSurviveAnyContinuation) {
  const std::vector<std::string> continuations{
      "",       "a",      "A",      "'s", " ",  "  x",        "\n",        "\u0301",   "\u0338",
      "\u11a8", "\u1161", "1",      ".",  "/",  "<|im_end|>", "|im_end|>", "im_end|>", ">",
      "\u0e34", "中",     "\u093c", "s",  "ll", "single>",    "\r\n\r\n"};
  std::mt19937 rng(6);
  for (int i = 0; i < 400; ++i) {
    const std::string start = random_text(rng, 12);
    for (const SplitRule rule : kRules) {
      for (const bool raw : {false, true}) {
        IncrementalTokenizer stream(fixture_tokenizer(), rule, raw);
        stream.push(start);
        for (const std::string& more : continuations) {
          EXPECT_TRUE(is_prefix(stream.ids(), whole_text(start + more, rule, raw))) << start << '|' << more;
        }
      }
    }
  }
}

TEST(Incremental, AWordIsReleasedWhenTheNextBegins) {
  for (const bool raw : {false, true}) {
    IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::qwen, raw);
    stream.push("Hello");
    EXPECT_TRUE(stream.ids().empty());
    stream.push(" ");  // a space takes no marks, so the word is safe already
    EXPECT_EQ(stream.ids().size(), whole_text("Hello", SplitRule::qwen, raw).size());
    stream.push("world");
    EXPECT_EQ(stream.ids().size(), whole_text("Hello", SplitRule::qwen, raw).size());
    stream.push(", how");
    EXPECT_EQ(stream.ids(), whole_text("Hello world,", SplitRule::qwen, raw));
  }
}

TEST(Incremental, ProseHoldsBackLittle) {
  const std::string text =
      "The quick brown fox jumps over the lazy dog. 今天天气很好，我们一起去公园吧！ आज मौसम बहुत अच्छा है। ";
  const Ids expected = whole_text(text, SplitRule::qwen, false);
  IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::qwen, false);
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = code_point_at(text, pos).length;
    stream.push(std::string_view(text).substr(pos, length));
    pos += length;
    // At most the last word and what follows it are open: 8 code points in the scripts above.
    size_t settled = pos;
    for (int back = 0; back < 12 && settled > 0; ++back) {
      do --settled;
      while (settled > 0 && (static_cast<uint8_t>(text[settled]) & 0xC0) == 0x80);
    }
    size_t released = 0;
    for (const int32_t id : stream.ids()) released += fixture_tokenizer().token_bytes(id).size();
    EXPECT_GE(released, settled) << text.substr(0, pos);
  }
}

TEST(Incremental, InvalidBytesNameTheirOffset) {
  IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::qwen, false);
  stream.push("abc\xC3");
  stream.push("\xA9");
  const Error first = expect_error([&] { stream.push("de\xFFg"); });
  EXPECT_EQ(first.code(), ErrorCode::invalid_text);
  EXPECT_NE(std::string(first.what()).find("offset 7"), std::string::npos) << first.what();
  EXPECT_EQ(std::string(expect_error([&] { stream.push("more"); }).what()), first.what());
  EXPECT_EQ(std::string(expect_error([&] { stream.finish(); }).what()), first.what());
}

TEST(Incremental, AnUnfinishedCodePointAtTheEndIsAnError) {
  IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::mistral, true);
  stream.push("ab\xE4\xBD");
  const Error error = expect_error([&] { stream.finish(); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_text);
  EXPECT_NE(std::string(error.what()).find("offset 2"), std::string::npos) << error.what();
}

TEST(Incremental, NothingMayFollowTheEnd) {
  IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::qwen, false);
  EXPECT_FALSE(stream.finished());
  stream.finish();
  EXPECT_TRUE(stream.finished());
  EXPECT_TRUE(stream.ids().empty());
  EXPECT_EQ(expect_error([&] { stream.push("x"); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(expect_error([&] { stream.finish(); }).code(), ErrorCode::invalid_argument);
}

TEST(Incremental,
     ByteWisePushesOfLongRunsStayLinear) {  // re-reading the run on every push would take minutes
  for (const char* unit : {"a", " ", "\n", "中", "\u0301", "<", "A ", "<|im_"}) {
    std::string text;
    while (text.size() < 60000) text += unit;
    for (const bool raw : {false, true}) {
      IncrementalTokenizer stream(fixture_tokenizer(), SplitRule::mistral, raw);
      for (const char byte : text) stream.push({&byte, 1});
      stream.finish();
      EXPECT_EQ(stream.ids(), whole_text(text, SplitRule::mistral, raw)) << unit;
    }
  }
}

}  // namespace
}  // namespace skald::text
