// The split expressions against an independent splitter that tries the alternatives one by one.
#include <utf8proc.h>

#include "text/splitter.h"
#include "text_fixture.h"

namespace skald::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces fast(const Splitter& splitter, SplitRule rule, std::string_view text) {
  Splitter::Scratch scratch(splitter);
  Pieces pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = splitter.piece_length(rule, text, pos, false, scratch).value();
    pieces.emplace_back(text.substr(pos, length));
    pos += length;
  }
  return pieces;
}

/// Follows the wording of model-spec 2.2 with loops, without any regex.
class SlowSplitter {
 public:
  SlowSplitter(SplitRule rule, std::string_view text) : rule_(rule), text_(to_utf32(text)) {}

  Pieces pieces() {
    Pieces out;
    for (size_t pos = 0; pos < text_.size();) {
      const size_t end = piece_end(pos);
      std::string piece;
      for (; pos < end; ++pos) append_utf8(piece, text_[pos]);
      out.push_back(piece);
    }
    return out;
  }

 private:
  static std::string kind(char32_t c) { return utf8proc_category_string(static_cast<utf8proc_int32_t>(c)); }
  bool letter(size_t i) const { return i < text_.size() && kind(text_[i])[0] == 'L'; }
  bool number(size_t i) const { return i < text_.size() && kind(text_[i])[0] == 'N'; }
  bool line(size_t i) const { return i < text_.size() && (text_[i] == '\r' || text_[i] == '\n'); }
  bool space(size_t i) const {
    static const std::u32string kSpaces =
        U"\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
        U"\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
    return i < text_.size() && kSpaces.find(text_[i]) != kSpaces.npos;
  }
  bool symbol(size_t i) const { return i < text_.size() && !space(i) && !letter(i) && !number(i); }
  bool upper(size_t i) const {  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
    return i < text_.size() && ((letter(i) && kind(text_[i]) != "Ll") || kind(text_[i])[0] == 'M');
  }
  bool lower(size_t i) const {  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
    if (i >= text_.size()) return false;
    const std::string k = kind(text_[i]);
    return k == "Ll" || k == "Lm" || k == "Lo" || k[0] == 'M';
  }
  bool lead(size_t i) const { return i < text_.size() && !line(i) && !letter(i) && !number(i); }

  size_t contraction(size_t i) const {
    if (text_[i] != '\'') return 0;
    for (const std::u32string_view ending : {U"s", U"t", U"re", U"ve", U"m", U"ll", U"d"}) {
      bool same = i + ending.size() < text_.size();
      for (size_t k = 0; same && k < ending.size(); ++k) {
        const char32_t c = text_[i + 1 + k];
        const char32_t folded = c >= 'A' && c <= 'Z' ? c + 32 : c == U'ſ' ? U's' : c;
        same = folded == ending[k];
      }
      if (same) return i + 1 + ending.size();
    }
    return 0;
  }
  size_t qwen_word(size_t i) const {
    size_t j = lead(i) ? i + 1 : i;
    if (!letter(j)) return 0;
    while (letter(j)) ++j;
    return j;
  }
  /// upper* lower+ from i, else 0
  size_t rising(size_t i) const {
    size_t j = i;
    while (upper(j)) ++j;
    for (size_t k = j + 1; k-- > i;) {
      if (!lower(k)) continue;
      while (lower(k)) ++k;
      return k;
    }
    return 0;
  }
  /// upper+ lower* from i, else 0
  size_t falling(size_t i) const {
    if (!upper(i)) return 0;
    while (upper(i)) ++i;
    while (lower(i)) ++i;
    return i;
  }
  size_t mistral_word(size_t i) const {
    if (lead(i)) {
      if (const size_t end = rising(i + 1)) return end;
    }
    if (const size_t end = rising(i)) return end;
    if (lead(i)) {
      if (const size_t end = falling(i + 1)) return end;
    }
    return falling(i);
  }
  size_t symbols(size_t i) const {
    size_t j = text_[i] == ' ' ? i + 1 : i;
    if (!symbol(j)) return 0;
    while (symbol(j)) ++j;
    while (line(j) || (rule_ == SplitRule::mistral && j < text_.size() && text_[j] == '/')) ++j;
    return j;
  }
  size_t spaces(size_t i) const {
    size_t end = i;
    while (space(end)) ++end;
    for (size_t k = end; k-- > i;) {
      if (line(k)) return k + 1;  // \s*[\r\n]+ reaches the last line end of the run
    }
    return end < text_.size() && end - i > 1 ? end - 1 : end;
  }
  size_t piece_end(size_t i) const {
    if (rule_ == SplitRule::qwen) {
      if (const size_t end = contraction(i)) return end;
      if (const size_t end = qwen_word(i)) return end;
    } else if (const size_t end = mistral_word(i)) {
      return end;
    }
    if (number(i)) return i + 1;
    if (const size_t end = symbols(i)) return end;
    return spaces(i);
  }

  SplitRule rule_;
  std::u32string text_;
};

TEST(Split, B007_PiecesOfTheReportedTexts) {  // a tokenizer loaded with a wrong pattern
  const Splitter splitter;
  const auto qwen = [&](std::string_view text) { return fast(splitter, SplitRule::qwen, text); };
  EXPECT_EQ(qwen("2025"), (Pieces{"2", "0", "2", "5"}));
  EXPECT_EQ(qwen("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(qwen("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(qwen("x\n\ny"), (Pieces{"x", "\n\n", "y"}));
  EXPECT_EQ(qwen("你好，世界"), (Pieces{"你好", "，世界"}));
  EXPECT_EQ(qwen("👩‍🚀!"), (Pieces{"👩‍🚀!"}));
  EXPECT_EQ(qwen("a\u180eb"), (Pieces{"a", "\u180eb"}));  // not white space, though PCRE2's \s says so
  EXPECT_EQ(fast(splitter, SplitRule::mistral, "getUserName()"), (Pieces{"get", "User", "Name", "()"}));
}

TEST(Split, EqualsTheSlowSplitter) {
  const Splitter splitter;
  std::mt19937 rng(4);
  for (int i = 0; i < 6000; ++i) {
    std::string text;
    for (const char32_t c : to_utf32(random_text(rng, 24))) {
      if (utf8proc_category(static_cast<utf8proc_int32_t>(c)) != UTF8PROC_CATEGORY_CN) append_utf8(text, c);
    }
    for (const SplitRule rule : kRules) {
      EXPECT_EQ(fast(splitter, rule, text), SlowSplitter(rule, text).pieces()) << text;
    }
  }
}

TEST(Split, LettersOfUnicode16AreLettersWithAnyPcre) {
  const Splitter splitter;
  EXPECT_EQ(fast(splitter, SplitRule::qwen, "\U00031350\U000323af").size(), 1u);
  EXPECT_EQ(fast(splitter, SplitRule::qwen, "\U00010d40\U00010d41").size(), 2u);  // digits
  EXPECT_EQ(fast(splitter, SplitRule::mistral, "\U00010d70\U00010d50\U00010d70").size(),
            2u);  // lower, upper lower
}

TEST(Split, AnOpenPieceIsNotReleased) {
  const Splitter splitter;
  Splitter::Scratch scratch(splitter);
  const auto open = [&](std::string_view text) {
    return !splitter.piece_length(SplitRule::qwen, text, 0, true, scratch).has_value();
  };
  EXPECT_TRUE(open("word"));
  EXPECT_TRUE(open(" "));
  EXPECT_TRUE(open("\n"));
  EXPECT_TRUE(open("'r"));
  EXPECT_TRUE(open("!"));
  EXPECT_FALSE(open("word "));
  EXPECT_FALSE(open("1"));
  EXPECT_FALSE(open("'s"));
}

TEST(Split, LongRunsOfOneCharacter) {  // no match limit, no stack
  const Splitter splitter;
  for (const char* unit : {"a", "A", " ", "\n", "!", "中", "\u0301", "' ", "ʰ", "aA", " \n"}) {
    std::string text;
    for (int i = 0; i < 300000; ++i) text += unit;
    for (const SplitRule rule : kRules) {
      size_t bytes = 0;
      for (const std::string& piece : fast(splitter, rule, text)) bytes += piece.size();
      EXPECT_EQ(bytes, text.size());
    }
  }
}

TEST(Split, ARunPastPcresDefaultMatchLimit) {
  const Splitter splitter;
  const std::string text(12'000'000, 'A');  // upper case makes the second expression try every length
  EXPECT_EQ(fast(splitter, SplitRule::mistral, text).size(), 1u);
}

}  // namespace
}  // namespace skald::text
