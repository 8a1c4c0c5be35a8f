// Validation, recoding by byte order mark, piecewise decoding.
#include "text/utf8.h"

#include <gmock/gmock.h>

#include "text_fixture.h"

namespace skald::text {
namespace {

using namespace std::string_view_literals;

std::string offset_of(std::string_view bytes) {
  const Error error = expect_error([&] { decode_text(bytes); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_text);
  const std::string what = error.what();
  const size_t at = what.find("byte offset ");
  return at == what.npos ? what
                         : what.substr(at + 12, what.find_first_not_of("0123456789", at + 12) - at - 12);
}

TEST(Utf8, InvalidBytesGiveTheirOffset) {
  EXPECT_EQ(offset_of("ab\xFF"), "2");
  EXPECT_EQ(offset_of("\x80"), "0");                // a continuation byte alone
  EXPECT_EQ(offset_of("a\xC0\xAF"), "1");           // overlong
  EXPECT_EQ(offset_of("\xE0\x80\x80"), "0");        // overlong
  EXPECT_EQ(offset_of("xx\xED\xA0\x80"), "2");      // surrogate
  EXPECT_EQ(offset_of("\xF4\x90\x80\x80"), "0");    // past U+10FFFF
  EXPECT_EQ(offset_of("é\xE4\xBD"), "2");           // cut off
  EXPECT_EQ(offset_of("\xEF\xBB\xBFok\xFE"), "5");  // counted from the start of the file
}

TEST(Utf8, ByteOrderMarks) {
  EXPECT_EQ(decode_text("\xEF\xBB\xBFh\xC3\xA9"), "hé");
  EXPECT_EQ(decode_text("\xFF\xFEh\0\xE9\0\x3D\xD8\x00\xDE"sv), "hé😀");
  EXPECT_EQ(decode_text("\xFE\xFF\0h\0\xE9\xD8\x3D\xDE\x00"sv), "hé😀");
  EXPECT_EQ(decode_text("\xFF\xFE\0\0h\0\0\0\x00\xF6\x01\0"sv), "h😀");
  EXPECT_EQ(decode_text("\0\0\xFE\xFF\0\0\0h\0\x01\xF6\x00"sv), "h😀");
  EXPECT_EQ(decode_text("\xFF\xFE"), "");
  EXPECT_EQ(decode_text(""), "");
  EXPECT_EQ(decode_text("a\0b"sv), "a\0b"sv);
}

TEST(Utf8, WideEncodingsWithoutTheirMarkAreNoUtf8) {
  EXPECT_EQ(offset_of("h\0i\0"sv), "3");
  EXPECT_EQ(offset_of("\0h\0i"sv), "2");
  EXPECT_EQ(offset_of("h\0\0\0i\0\0\0"sv), "5");
  EXPECT_EQ(offset_of("H\0e\0\xE9\0"sv), "3") << "before the byte that is none of UTF-8";
  EXPECT_THAT(expect_error([] { decode_text("h\0i\0"sv); }).what(),
              ::testing::HasSubstr("without a byte order mark"));
  for (const std::string_view good : {"a\0b"sv, "a\0\0b"sv, "ab\0cde\0fghi"sv, "\0"sv})
    EXPECT_EQ(decode_text(good), good);
}

TEST(Utf8, DamagedWideEncodings) {
  EXPECT_EQ(offset_of("\xFF\xFEh\0\x3D"sv), "4");  // half a unit
  EXPECT_EQ(offset_of("\xFF\xFE\x3D\xD8"), "2");   // high surrogate at the end
  EXPECT_EQ(offset_of("\xFF\xFE\x3D\xD8h\0"sv), "2");
  EXPECT_EQ(offset_of("\xFF\xFE\x00\xDE"sv), "2");        // low surrogate first
  EXPECT_EQ(offset_of("\xFF\xFE\0\0\0\0\x11\0"sv), "4");  // past U+10FFFF
}

TEST(Utf8, PiecewiseDecodingEqualsWhole) {
  const std::vector<std::string> texts{"h\xC3\xA9😀",
                                       std::string("\xFF\xFEh\0\xE9\0\x3D\xD8\x00\xDE"sv),
                                       std::string("\xFF\xFE\0\0h\0\0\0\x00\xF6\x01\0"sv),
                                       std::string("\0\0\xFE\xFF\0\0\0h"sv),
                                       "\xEF\xBB\xBFx",
                                       std::string("\0\0x"sv),
                                       "\xEF\xBB\xBF"};
  for (const std::string& bytes : texts) {
    const std::string whole = decode_text(bytes);
    for (size_t step = 1; step <= bytes.size(); ++step) {
      TextDecoder decoder;
      std::string text;
      for (size_t pos = 0; pos < bytes.size(); pos += step)
        text += decoder.push(std::string_view(bytes).substr(pos, step));
      EXPECT_EQ(text + decoder.finish(), whole);
    }
  }
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    append_utf8(bytes, c);
    ASSERT_TRUE(scan_utf8(bytes).ok(bytes.size()));
    const CodePoint back = code_point_at(bytes, 0);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.length, bytes.size());
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Scan scan = scan_utf8(std::string_view(bytes).substr(0, cut));
      ASSERT_TRUE(scan.incomplete && scan.valid == 0);
    }
  }
  EXPECT_EQ(count_code_points("aé中😀"), 4u);
}

}  // namespace
}  // namespace skald::text
