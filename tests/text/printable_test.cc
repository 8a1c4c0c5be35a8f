// What a terminal could take for a command is replaced, text is not.
#include <gtest/gtest.h>

#include "text/utf8.h"

namespace skald::test {
namespace {

using text::printable;

TEST(Printable, TextStays) {
  for (const char* text : {"", "Anna", "日本語 ñ €", "\xC2\xA0", "\xF0\x9F\x98\x80"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, CommandsAndNoTextDoNot) {
  EXPECT_EQ(printable("a\033[31mb\a\r\n\tc\x7F"), "a?[31mb????c?");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "b"),
            "a?b");                                            // CSI as one character
  EXPECT_EQ(printable("\xC0\x80\xE2\x82\xFF\x80"), "??????");  // no UTF-8
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "?x");
}

}  // namespace
}  // namespace skald::test
