// What of other people's text a terminal and a log see.
#include "base/visible_text.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

TEST(VisibleText, PlainTextOfAnyLanguageStaysAsItIs) {
  for (const char* text : {"", "plain", "two\nlines\tand a tab", "Gr\u00fc\u00dfe, \u4f60\u597d \U0001F600"})
    EXPECT_EQ(visible_text(text), text);
}

TEST(VisibleText, WhatDrivesATerminalIsShown) {
  EXPECT_EQ(visible_text("\x1b[31mred\r\x07\x7f"), "\\x1b[31mred\\x0d\\x07\\x7f");
  EXPECT_EQ(visible_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(visible_text("\u009b31m"), "\\x9b31m") << "CSI of C1, as UTF-8";
  EXPECT_EQ(visible_text("\x9b"
                         "31m"),
            "\\x9b31m")
      << "as a byte that is not UTF-8";
  EXPECT_EQ(visible_text("a\u2028b\u2029c\u202ed\u2066e\ufeff"), "a\\u{2028}b\\u{2029}c\\u{202e}d\\u{2066}e\\u{feff}");
}

TEST(VisibleText, WhatIsNotUtf8IsShownByteByByte) {
  EXPECT_EQ(visible_text("\xc3"), "\\xc3");
  EXPECT_EQ(visible_text("\xc0\x80"), "\\xc0\\x80") << "an overlong NUL";
  EXPECT_EQ(visible_text("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(visible_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(visible_text("\xe2\x80"), "\\xe2\\x80") << "cut short";
}

TEST(LogWord, IsOneWordOfBoundedLength) {
  EXPECT_EQ(log_word("/v1/models", 100), "/v1/models");
  EXPECT_EQ(log_word("a b\nc\td", 100), "a\\x20b\\x0ac\\x09d");
  EXPECT_EQ(log_word("/" + std::string(20000, 'A'), 8), "/AAAAAAA...(19993_more_bytes)");
  EXPECT_EQ(log_word("ab\u2028", 4), "ab...(3_more_bytes)") << "no escape is cut in two";
}

}  // namespace
}  // namespace nodewright
