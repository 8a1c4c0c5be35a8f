// Cutting text: nothing lost, marks of many scripts, limits, chunks.
#include "text/sentences.h"

#include <algorithm>
#include <utility>

#include "text/inspect.h"
#include "text_fixture.h"

namespace skald::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(const std::string& text, size_t limit) {
  Pieces pieces;
  size_t end = 0;
  for (const Piece& piece : split_sentences(text, limit)) {
    EXPECT_EQ(piece.offset, end);
    pieces.push_back(text.substr(piece.offset, piece.length));
    end += piece.length;
  }
  EXPECT_EQ(end, text.size());
  return pieces;
}

/// The sentences: the smallest pieces that the limit of the longest one gives.
Pieces sentences(const std::vector<std::string>& parts) {
  std::string text;
  size_t longest = 1;
  for (const std::string& part : parts) {
    text += part;
    longest = std::max(longest, count_code_points(part));
  }
  return pieces_of(text, longest);
}

// Each list holds sentences of nearly equal length, so that no two fit together within the longest.
TEST(Sentences, MarksOfManyScripts) {
  const std::vector<Pieces> cases{
      {"It is cold. ", "I go home! ", "Will you? ", "Maybe so… ", "Good bye."},
      {"今天很冷。", "我回家了！", "你来不来？", "也许来吧；", "再见了啊。"},
      {"今日は寒い。", "帰りますね！", "来ますかね？", "さようなら。"},
      {"आज ठंड है। ", "मैं जाता हूँ॥ ", "फिर मिलेंगे।"},
      {"الجو بارد. ", "هل ستأتي؟ ", "ربما غدا؛ ", "إلى اللقاء۔"},
      {"오늘 춥네요. ", "집에 갑니다! ", "오시나요? "},
      {"ዛሬ ብርድ ነው። ", "ወደ ቤት ሄድኩ። "},
      {"Сегодня холодно. ", "Я иду домой! ", "Ты придёшь? "},
      {"«Il fait froid.» ", "“Go home now!” ", "(Will you so?) ", "„Es ist kalt.“ "},
      {"他说：“冷。”", "我说：“走！”", "「寒いね。」", "『本当か？』"},
      {"真的很冷吗?", "是的很冷哦!", "那我走了啊."},
  };
  for (const Pieces& expected : cases) EXPECT_EQ(sentences(expected), expected);
}

TEST(Sentences, FullStopsThatEndNothing) {
  for (const char* text :
       {"Pi is 3.14159 and a million is 1.000.000 or 1,000,000 here",
        "Use version 2.0.1 of Node.js from example.com today",
        "Dr. Smith met Mrs. Jones and Prof. Brown in St. Louis",
        "The U.S. Army and J. R. R. Tolkien, e.g. Frodo", "Das ist z. B. ein Text vom 3. Oktober bzw. später",
        "See No. 5 and Fig. 3 in Vol. 12", "Wait... what is that", "“What?” he said", "Yahoo! is a firm",
        "Write a.b@c.de or visit http://x.org/y?z=1", "Hr. Meyer und Fr. Schulz",
        "El Sr. García y la Sra. López", "डॉ. शर्मा आए", "J’ai vu M. Dupont", "It is 5 p.m. now"}) {
    // If a sentence ended inside, a limit just under the length would cut there; a cut at the last space is
    // expected.
    const std::string value = text;
    const Pieces pieces = pieces_of(value, count_code_points(value) - 1);
    ASSERT_EQ(pieces.size(), 2u) << text;
    EXPECT_GE(count_code_points(pieces[0]), (count_code_points(value) - 1) / 2)
        << pieces[0] << '|' << pieces[1];
    for (const char* stop : {"Dr. ", "Mrs. ", "St. ", "J. ", "R. ", "z. ", "B. ", "3. ", "No. ", "Fig. ",
                             "Vol. ", "Hr. ", "Sr. ", "Sra. ", "डॉ. ", "M. "}) {
      EXPECT_FALSE(pieces[0].ends_with(stop)) << pieces[0] << '|' << pieces[1];
    }
  }
}

TEST(Sentences, MergedUpToTheLimit) {
  EXPECT_EQ(pieces_of("One. Two.", 100), (Pieces{"One. Two."}));
  EXPECT_EQ(pieces_of("One. Two. Three. Four.", 10), (Pieces{"One. Two. ", "Three. ", "Four."}));
  EXPECT_EQ(pieces_of("One. Two.", 4), (Pieces{"One. ", "Two."}));
  EXPECT_EQ(pieces_of("", 10), Pieces{});
  EXPECT_EQ(pieces_of("Title\n\nThe text is here.", 18), (Pieces{"Title\n\n", "The text is here."}));
}

TEST(Sentences, ALongSentenceIsCutAtClausesThenSpacesThenGraphemes) {
  EXPECT_EQ(pieces_of("When it rains all day long, we stay at home.", 30),
            (Pieces{"When it rains all day long, ", "we stay at home."}));
  EXPECT_EQ(pieces_of("we walked and walked and walked", 20),
            (Pieces{"we walked and walked ", "and walked"}));
  EXPECT_EQ(pieces_of("今天天气很好，我们一起去公园", 10), (Pieces{"今天天气很好，", "我们一起去公园"}));
  EXPECT_EQ(pieces_of("今天天气很好我们一起去公园", 5), (Pieces{"今天天气很", "好我们一起", "去公园"}));
  // e + acute, and a family of joined emoji, stay whole
  EXPECT_EQ(pieces_of("ne\u0301ne\u0301ne\u0301", 4), (Pieces{"ne\u0301n", "e\u0301ne\u0301"}));
  EXPECT_EQ(pieces_of("ab👩\u200d👩\u200d👧cd", 4), (Pieces{"ab👩\u200d👩\u200d👧", "cd"}));
  EXPECT_EQ(pieces_of("first item\nsecond item\nthird item", 24),
            (Pieces{"first item\nsecond item\n", "third item"}));
}

TEST(Sentences, APieceNeverHasNothingToSay) {
  EXPECT_EQ(pieces_of("- milk\n-\n- bread", 7), (Pieces{"- milk\n-\n", "- bread"}));
  EXPECT_EQ(pieces_of("Hi.\n* * *\nYou.", 5), (Pieces{"Hi.\n", "* * *\nYou."}));
  EXPECT_EQ(pieces_of("* * *", 2), (Pieces{"* * *"}));
  EXPECT_EQ(pieces_of("😀😀😀 a", 2), (Pieces{"😀😀😀 a"}));
  EXPECT_EQ(pieces_of("a 😀😀😀😀😀😀", 2), (Pieces{"a 😀😀😀😀😀😀"}));
  const std::string dashes(10000, '-');
  const Pieces pieces = pieces_of("One two three.\n" + dashes + "\nFour five six.", 20);
  for (const std::string& piece : pieces) EXPECT_TRUE(anything_to_speak(piece));
}

TEST(Sentences, AHundredSentencesInOrder) {
  std::string text;
  for (int i = 1; i <= 100; ++i) text += "This is sentence number " + std::to_string(i) + " of a long text. ";
  const Pieces pieces = pieces_of(text, 200);
  EXPECT_LT(pieces.size(), 34u);  // three or four sentences each
  for (const std::string& piece : pieces) {
    EXPECT_LE(count_code_points(piece), 201u);  // the space at the end is not counted
    EXPECT_TRUE(piece.starts_with("This is ") && piece.ends_with("text. ")) << piece;
  }
}

/// Code points from the first spoken one to the last.
size_t spoken_extent(const std::string& piece) {
  const std::u32string points = to_utf32(piece);
  const auto first = std::find_if(points.begin(), points.end(), is_spoken);
  const auto last = std::find_if(points.rbegin(), points.rend(), is_spoken).base();
  return first < last ? static_cast<size_t>(last - first) : 0;
}

std::string random_prose(std::mt19937& rng, size_t parts) {
  static const std::vector<std::string> kParts{
      "word ",    "Word ",   "a",       " ",      "  ",         ". ",        ".",    "! ",     "?",      "? ",
      "...",      "… ",      ", ",      "; ",     ": ",         "\n",        "\n\n", "\r\n",   "。",     "，",
      "！",       "我们",    "ก",       "। ",     "؟ ",         "“",         "”",    "\"",     "(",      ")",
      "」",       "- ",      "* * *\n", "---",    "3.14",       "12. ",      "Dr. ", "U.S. ",  "etc., ", "😀",
      "👩\u200d👧", "e\u0301", "\u200b",  "\u00a0", "longerword", "Überlänge", "— ",   "\u0301", "가"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) text += kParts[rng() % kParts.size()];
  return text;
}

/// All pieces when the text comes in chunks, by next() or put together from fragments.
Pieces chunked(const std::string& text, size_t limit, std::mt19937& rng, bool fragments) {
  SentenceSplitter splitter(limit);
  Pieces pieces;
  std::string open;
  const auto drain = [&] {
    if (!fragments) {
      while (auto piece = splitter.next()) pieces.push_back(*piece);
      return;
    }
    while (auto fragment = splitter.next_fragment()) {
      EXPECT_TRUE(fragment->ends_piece || !fragment->text.empty());
      open += fragment->text;
      if (fragment->ends_piece) pieces.push_back(std::exchange(open, {}));
    }
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = 1 + rng() % 7;
    splitter.push(std::string_view(text).substr(pos, length));
    pos += length;
    drain();
  }
  splitter.finish();
  drain();
  EXPECT_EQ(open, "");
  return pieces;
}

TEST(Sentences, PropertiesOnRandomProse) {
  std::mt19937 rng(7);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_prose(rng, 1 + rng() % 60);
    const size_t limit = 1 + rng() % 50;
    const Pieces pieces = pieces_of(text, limit);  // checks that they join to the text
    const bool spoken = anything_to_speak(text);
    for (const std::string& piece : pieces) {
      EXPECT_EQ(anything_to_speak(piece), spoken) << piece;
      EXPECT_LE(spoken_extent(piece), limit) << piece << " limit " << limit;
    }
    EXPECT_EQ(chunked(text, limit, rng, false), pieces) << text;
    EXPECT_EQ(chunked(text, limit, rng, true), pieces) << text;
  }
}

TEST(Sentences, NeighboursWouldNotFitTogether) {
  std::mt19937 rng(8);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t n = 3 + rng() % 12; n > 0; --n) {
      text += "We";
      for (size_t words = rng() % 6; words > 0; --words) text += " go";
      text += ". ";
    }
    const size_t limit = 25 + rng() % 30;  // every sentence fits
    const Pieces pieces = pieces_of(text, limit);
    for (size_t k = 0; k + 1 < pieces.size(); ++k) {
      const size_t first_sentence = pieces[k + 1].find(". ") + 1;
      EXPECT_LE(count_code_points(pieces[k]), limit + 2);  // the full stop and the space
      EXPECT_GT(count_code_points(pieces[k]) + first_sentence, limit) << pieces[k] << '|' << pieces[k + 1];
    }
  }
}

TEST(Sentences, FragmentsComeBeforeThePieceEnds) {
  SentenceSplitter splitter(200);
  splitter.push("The first sentence. The sec");
  const auto fragment = splitter.next_fragment();
  ASSERT_TRUE(fragment.has_value());
  EXPECT_EQ(fragment->text, "The first sentence. ");
  EXPECT_FALSE(fragment->ends_piece);
  splitter.push("ond one.");
  splitter.finish();
  const auto rest = splitter.next_fragment();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->text, "The second one.");
  EXPECT_TRUE(rest->ends_piece);
  EXPECT_FALSE(splitter.next_fragment().has_value());
}

TEST(Sentences, LongTextsTakeLinearTime) {
  for (const char* unit : {"a", "a ", "One. ", "中", "😀", "-", "\u0301", "\n", "a-------"}) {
    std::string text = "x";
    while (text.size() < 2'000'000) text += unit;
    size_t bytes = 0;
    for (const Piece& piece : split_sentences(text, 100)) bytes += piece.length;
    EXPECT_EQ(bytes, text.size());
  }
}

TEST(Sentences, Errors) {
  EXPECT_EQ(expect_error([] { split_sentences("a", 0); }).code(), ErrorCode::invalid_argument);
  const Error bad = expect_error([] { split_sentences("ab\xFF", 10); });
  EXPECT_EQ(bad.code(), ErrorCode::invalid_text);
  EXPECT_NE(std::string(bad.what()).find("offset 2"), std::string::npos);
  EXPECT_EQ(expect_error([] { split_sentences("ab\xE4\xBD", 10); }).code(), ErrorCode::invalid_text);
  SentenceSplitter done(10);
  done.finish();
  EXPECT_EQ(expect_error([&] { done.push("x"); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace skald::text
