// NFC, and the places where a text may be cut.
#include "text/normalize.h"

#include "text_fixture.h"

namespace skald::text {
namespace {

std::string nfc(std::string_view text) {
  std::string out;
  append_nfc(text, out);
  return out;
}

TEST(Normalize, KnownForms) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("a\u0302\u0323"), "ậ");        // reordered, then composed
  EXPECT_EQ(nfc("\u212b"), "\u00c5");          // a singleton
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");    // excluded from composition
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "한");  // Hangul by arithmetic
  EXPECT_EQ(nfc("가\u11a8"), "각");
  EXPECT_EQ(nfc("<\u0338"), "≮");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("a\U0001e2ae\u0327"),
            "a\U0001e2ae\u0327");  // newer than the reference's data: stays where it is
}

TEST(Normalize, IsIdempotent) {
  std::mt19937 rng(2);
  for (int i = 0; i < 3000; ++i) {
    const std::string once = nfc(random_text(rng, 20));
    EXPECT_EQ(nfc(once), once);
  }
}

TEST(Normalize, CutPlacesAreSafe) {
  std::mt19937 rng(3);
  size_t cuts = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(rng, 14);
    const std::string whole = nfc(text);
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint cp = code_point_at(text, pos);
      if (nfc_starts(cp.value)) {
        EXPECT_EQ(nfc(text.substr(0, pos)) + nfc(text.substr(pos)), whole) << text << " before " << pos;
        ++cuts;
      }
      pos += cp.length;
      if (nfc_closed(cp.value)) {
        EXPECT_EQ(nfc(text.substr(0, pos)) + nfc(text.substr(pos)), whole) << text << " after " << pos;
      }
    }
  }
  EXPECT_GT(cuts, 20000u);
}

TEST(Normalize, OrdinaryCharactersAreClosed) {
  for (const char32_t c : {U' ', U'.', U'1', U'中', U'。', U'각', U'\n', U'#'})
    EXPECT_TRUE(nfc_closed(c)) << uint32_t(c);
  for (const char32_t c : {U'a', U'<', U'가', U'\u1100', U'\u0301', U'\u1161', U'か'})
    EXPECT_FALSE(nfc_closed(c)) << uint32_t(c);
}

TEST(Normalize, UnorderedMarksTakeNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normal = nfc(text);
  EXPECT_EQ(normal.substr(0, 5), "ạ\u0323");  // all marks below come first now
}

}  // namespace
}  // namespace skald::text
