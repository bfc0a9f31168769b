// Stop strings in a text that comes in tokens, against a search in the whole text.
#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer_goldens.h"

namespace nodewright {
namespace {

class StopStringsOfBytes : public testing::Test {
 protected:
  const Tokenizer tokenizer_ = load(byte_tokenizer());  // a token for each byte

  // The text before the first stop string, and whether there is one; as it came, after each byte.
  std::pair<std::string, bool> pushed(std::vector<std::string> stops, const std::string& text) {
    StopStrings found(tokenizer_, std::move(stops));
    for (const char c : text)
      if (found.push(static_cast<uint8_t>(c))) return {found.text(), true};
    found.finish();
    return {found.text(), false};
  }
};

TEST_F(StopStringsOfBytes, EndTheTextBeforeTheFirstAndHoldBackWhatMayBeginOne) {
  EXPECT_EQ(pushed({"END"}, "the END of"), std::pair(std::string("the "), true));
  EXPECT_EQ(pushed({"END"}, "the EN"), std::pair(std::string("the EN"), false));
  EXPECT_EQ(pushed({"aab"}, "aaab"), std::pair(std::string("a"), true));
  EXPECT_EQ(pushed({"é"}, "caf\xc3\xa9!"), std::pair(std::string("caf"), true));
  EXPECT_EQ(pushed({"abcd", "bc"}, "abce"), std::pair(std::string("a"), true));
  StopStrings held(tokenizer_, {"abc", "x"});
  for (const char c : std::string("zab")) EXPECT_FALSE(held.push(static_cast<uint8_t>(c)));
  EXPECT_EQ(held.text(), "z");
  EXPECT_FALSE(held.push('d'));
  EXPECT_EQ(held.text(), "zabd");
}

TEST_F(StopStringsOfBytes, PassAsTextWhileTheRequestWantsMore) {
  StopStrings found(tokenizer_, {"ab"});
  for (const char c : std::string("xabab")) EXPECT_FALSE(found.push(static_cast<uint8_t>(c), false));
  EXPECT_FALSE(found.push('a'));
  EXPECT_EQ(found.matched(), "");
  EXPECT_TRUE(found.push('b'));
  EXPECT_EQ(found.text(), "xabab");
  EXPECT_EQ(found.matched(), "ab");
}

TEST_F(StopStringsOfBytes, WhatPassedAsTextMayBeginTheOneThatEndsIt) {
  StopStrings found(tokenizer_, {"abab"});
  for (const char c : std::string("abab")) EXPECT_FALSE(found.push(static_cast<uint8_t>(c), false));
  EXPECT_EQ(found.text(), "ab");
  EXPECT_FALSE(found.push('a'));
  EXPECT_TRUE(found.push('b'));
  EXPECT_EQ(found.text(), "ab");
}

// 64 strings that are nearly there at every byte: held back text of n bytes was compared n times for each of them.
TEST_F(StopStringsOfBytes, TakeAStepForEachByteHoweverMuchIsHeldBack) {
  std::vector<std::string> stops;
  for (size_t i = 0; i < 64; ++i) stops.push_back(std::string(40'000 + i, 'q') + "x");
  const auto set = std::make_shared<const StopSet>(std::move(stops));
  StopStrings one(tokenizer_, set), other(tokenizer_, set);
  EXPECT_LE(set.use_count(), 3) << "what is looked for is held once";
  for (int i = 0; i < 39'999; ++i) ASSERT_FALSE(one.push('q'));
  EXPECT_EQ(one.text(), "");
  EXPECT_FALSE(one.push('y'));
  EXPECT_EQ(one.text().size(), 40'000u);
  EXPECT_EQ(other.text(), "");
}

TEST_F(StopStringsOfBytes, AreFoundWhereASearchInTheWholeTextFindsThem) {
  std::mt19937 random(3);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t n = 1 + random() % most; n > 0; --n) text += random() % 2 == 0 ? "a" : random() % 3 == 0 ? "é" : "b";
    return text;
  };
  int stopped = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<std::string> stops = {word(4), word(6)};
    const std::string text = word(12);
    // The stop string that is complete first ends the text; of those complete at once, the one that began first.
    size_t end = std::string::npos, begin = std::string::npos;
    for (const std::string& stop : stops)
      if (const size_t at = text.find(stop); at != std::string::npos)
        if (at + stop.size() < end || (at + stop.size() == end && at < begin)) end = at + stop.size(), begin = at;
    const bool expected = end != std::string::npos;
    EXPECT_EQ(pushed(stops, text), std::pair(expected ? text.substr(0, begin) : text, expected))
        << stops[0] << " or " << stops[1] << " in " << text;
    stopped += expected;
  }
  EXPECT_GT(stopped, 300);
}

}  // namespace
}  // namespace nodewright
