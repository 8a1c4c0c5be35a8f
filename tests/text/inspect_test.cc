// Nothing to speak, invisible characters and their clean-up.
#include "text/inspect.h"

#include <gtest/gtest.h>

namespace skald::text {
namespace {

TEST(Inspect, TextsWithoutAnythingToSay) {
  for (const char* text :
       {"", " ", "\n\t", "...", "\"…\"", "🎲🧒", "* * *", "\u200b\u200b", "—", "?!", "\ufeff", "\u0301",
        "👨‍👩‍👧", "🇩🇪", "\u3164", "+ - $", "。！？", "\ue000", "\u00ad"}) {
    EXPECT_FALSE(anything_to_speak(text)) << text;
  }
}

TEST(Inspect, LettersAndNumbersAreSpoken) {
  for (const char* text :
       {"a", "1", "½", "中", "- x", "…é", "1️⃣", "ー", "가", "ᄀ", "न", "Ⅷ", "①", "\u200ba"})
    EXPECT_TRUE(anything_to_speak(text)) << text;
}

TEST(Inspect, InvisibleCharactersAreCounted) {
  const auto found = invisible_code_points(
      "pre\u00adrequi\u00adsite 12:00\u202fAM\n\ta\u00a0b one\u200btwo\ufeff x\x07 \u2000\u0301");
  ASSERT_EQ(found.size(), 7u);
  EXPECT_EQ(found[0].code_point, 0x07u);
  EXPECT_EQ(found[0].name, "control character");
  EXPECT_EQ(found[1].name, "no-break space");
  EXPECT_EQ(found[2].code_point, 0xADu);
  EXPECT_EQ(found[2].name, "soft hyphen");
  EXPECT_EQ(found[2].count, 2u);
  EXPECT_EQ(found[3].name, "space");
  EXPECT_EQ(found[4].name, "zero width space");
  EXPECT_EQ(found[5].name, "narrow no-break space");
  EXPECT_EQ(found[6].name, "byte order mark");
  EXPECT_TRUE(invisible_code_points("Plain text.\r\n\tNext é 中").empty());
}

TEST(Inspect, RunsThatNobodySaysAreShortened) {
  const auto shortened = [](const std::vector<std::string>& pieces, size_t most) {
    RunShortener shortener(most);
    std::string out;
    for (const std::string& piece : pieces) out += shortener.push(piece);
    return std::pair(out, shortener.left_out());
  };
  using Result = std::pair<std::string, size_t>;
  EXPECT_EQ(shortened({"a---b"}, 3), Result("a---b", 0));
  EXPECT_EQ(shortened({"a----b----"}, 3), Result("a---b---", 2));
  EXPECT_EQ(shortened({"a--", "", "--", "b"}, 3), Result("a---b", 1)) << "however it arrives";
  EXPECT_EQ(shortened({"a 😀 - 😀b"}, 3), Result("a 😀 b", 3)) << "whole code points";
  EXPECT_EQ(shortened({"\xff----"}, 3), Result("\xff----", 0)) << "for the next in line to refuse";
}

TEST(Inspect, CleanUpRemovesWhatSpoilsWords) {
  EXPECT_EQ(clean_invisible("pre\u00adrequi\u00adsite"), "prerequisite");
  EXPECT_EQ(clean_invisible("12:00\u202fAM"), "12:00 AM");
  EXPECT_EQ(clean_invisible("a\u00a0b\u3000c"), "a b c");
  EXPECT_EQ(clean_invisible("one\u200btwo"), "onetwo");
  EXPECT_EQ(clean_invisible("a\ufeffb\u2060c"), "abc");
  EXPECT_EQ(clean_invisible("\u202bعربي\u202c \u2067نص\u2069\u200f"), "عربي نص");
  EXPECT_EQ(clean_invisible("a\u2028b\u0085c\fd"), "a\nb\nc\nd");
  EXPECT_EQ(clean_invisible("a\x01"
                            "b\x7f\tc\r\n"),
            "ab\tc\r\n");
}

TEST(Inspect, CleanUpLeavesJoinersWhereTheyMatter) {
  for (const char* text :
       {"می\u200cخواهم", "क्\u200dष", "क्\u200cष", "👨\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "❤\ufe0f"})
    EXPECT_EQ(clean_invisible(text), text);
  EXPECT_EQ(clean_invisible("zero\u200cwidth\u200djoin"), "zerowidthjoin");
  EXPECT_EQ(clean_invisible("中\u200d文"), "中文");
}

}  // namespace
}  // namespace skald::text
