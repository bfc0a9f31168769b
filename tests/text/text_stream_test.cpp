// Streamed text against whole-sequence decoding, and what a stream holds back.
#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/error.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using Ids = std::vector<TokenId>;

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    if (step.kind != Utf8Kind::complete) return false;
    text.remove_prefix(step.size);
  }
  return true;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = stream.push(id);
    EXPECT_TRUE(is_valid_utf8(part)) << id;
    text += part;
  }
  return text + stream.flush();
}

// One token per byte: id = byte.
class ByteStream : public testing::Test {
 protected:
  const Tokenizer tokenizer_ = load([] {
    auto file = byte_tokenizer();
    file["added_tokens"] = nlohmann::json::array({added_token(256, "<end>", true), added_token(257, "\u2581", false)});
    return file;
  }());
  TextStream stream_{tokenizer_};
};

TEST_F(ByteStream, HoldsATruncatedCharacterUntilItIsComplete) {
  EXPECT_EQ(stream_.push('a'), "a");
  EXPECT_EQ(stream_.push(0xF0), "");
  EXPECT_EQ(stream_.push(0x9F), "");
  EXPECT_EQ(stream_.push(0x98), "");
  EXPECT_EQ(stream_.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream_.flush(), "");
}

TEST_F(ByteStream, ReplacesInvalidBytesAtOnce) {
  EXPECT_EQ(stream_.push(0x80), "\uFFFD");
  EXPECT_EQ(stream_.push(0xC0), "\uFFFD");
  EXPECT_EQ(stream_.push(0xE2), "");
  EXPECT_EQ(stream_.push('x'), "\uFFFDx");
  EXPECT_EQ(stream_.push(0xED), "");
  EXPECT_EQ(stream_.push(0xA0), "\uFFFD\uFFFD");  // a surrogate: neither byte can become anything
  EXPECT_EQ(stream_.flush(), "");
}

TEST_F(ByteStream, FlushesATruncatedCharacterAsOneReplacement) {
  stream_.push(0xF0);
  stream_.push(0x9F);
  EXPECT_EQ(stream_.flush(), "\uFFFD");
  EXPECT_EQ(stream_.flush(), "");
  EXPECT_EQ(stream_.push('b'), "b");
}

TEST_F(ByteStream, LeavesSpecialTokensOutWithoutCuttingACharacter) {
  EXPECT_EQ(stream_.push(0xC3), "");
  EXPECT_EQ(stream_.push(256), "");
  EXPECT_EQ(stream_.push(0xA9), "\u00E9");
  TextStream keeping(tokenizer_, false);
  EXPECT_EQ(keeping.push(256), "<end>");
  EXPECT_EQ(keeping.push(257), "\u2581");
}

TEST_F(ByteStream, PrintsNothingForAnIdWithoutATokenAndStaysAsItWas) {
  stream_.push(0xC3);
  EXPECT_EQ(stream_.push(258), "");
  EXPECT_EQ(stream_.push(-1), "");
  EXPECT_EQ(stream_.push(0xA9), "\u00E9");
}

TEST_F(ByteStream, JoinsToTheDecodedTextForAllPairsOfLeadAndFollowingBytes) {
  for (int first = 0xC0; first < 0x100; ++first) {
    for (int second = 0x70; second < 0xC8; ++second) {
      for (const int third : {0x41, 0x80, 0xBF, 0xE2}) {
        const Ids ids = {first, second, third};
        ASSERT_EQ(streamed(tokenizer_, ids, true), tokenizer_.decode(ids)) << first << ' ' << second << ' ' << third;
      }
    }
  }
}

TEST_F(ByteStream, JoinsToTheDecodedTextForRandomBytes) {
  std::mt19937 random(3);
  const std::string bytes = "a\x80\xBF\xC2\xC3\xE0\xA0\xE2\x82\xAC\xED\x9F\xF0\x90\xF4\x8F\xFF";
  for (int round = 0; round < 5000; ++round) {
    Ids ids;
    for (int i = 0; i < 24; ++i) ids.push_back(static_cast<unsigned char>(bytes[random() % bytes.size()]));
    ASSERT_EQ(streamed(tokenizer_, ids, true), tokenizer_.decode(ids));
  }
}

// One token per byte of a run, id = byte; 257 and 258 are characters.
class FallbackStream : public testing::Test {
 protected:
  const Tokenizer tokenizer_ = load([] {
    auto file = character_tokenizer();
    file["added_tokens"] = nlohmann::json::array({added_token(300, "<end>", true)});
    return file;
  }());
  TextStream stream_{tokenizer_};
};

TEST_F(FallbackStream, HoldsARunOfBytesUntilItEnds) {
  EXPECT_EQ(stream_.push(257), "a");
  EXPECT_EQ(stream_.push(0xC3), "");
  EXPECT_EQ(stream_.push(300), "");  // left out: the run goes on
  EXPECT_EQ(stream_.push(0xA9), "");
  EXPECT_EQ(stream_.push('x'), "");
  EXPECT_EQ(stream_.push(258), "\u00E9xb");
  EXPECT_EQ(stream_.push(0xC3), "");
  EXPECT_EQ(stream_.flush(), "\uFFFD");
  EXPECT_EQ(stream_.flush(), "");
}

TEST_F(FallbackStream, ReplacesEveryByteOfARunOnceOneIsInvalid) {
  EXPECT_EQ(stream_.push('x'), "");
  EXPECT_EQ(stream_.push(0xE2), "");
  EXPECT_EQ(stream_.push(0xFF), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream_.push('y'), "\uFFFD");
  EXPECT_EQ(stream_.push(257), "a");
  EXPECT_EQ(stream_.push('z'), "");
  EXPECT_EQ(stream_.flush(), "z");
}

TEST_F(FallbackStream, JoinsToTheDecodedTextForRandomTokens) {
  std::mt19937 random(5);
  const std::string bytes = "xy\x80\xBF\xC2\xC3\xE0\xA0\xE2\x82\xAC\xF0\x9F";
  for (int round = 0; round < 5000; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) {
      const bool ends_run = random() % 4 == 0;
      ids.push_back(ends_run ? 257 : static_cast<unsigned char>(bytes[random() % bytes.size()]));
    }
    ASSERT_EQ(streamed(tokenizer_, ids, true), tokenizer_.decode(ids));
  }
}

TEST(TextStream, JoinsToWhatTheLibraryDecodes) {
  std::size_t sequences = 0;
  for (const auto& family : kFamilies) {
    const Tokenizer tokenizer = Tokenizer::from_file(golden_tokenizer(family));
    const nlohmann::json cases = golden_cases(family);
    for (const auto& one : cases["decode"]) {
      const Ids ids = one["ids"];
      EXPECT_EQ(streamed(tokenizer, ids, false), one["kept"].get<std::string>()) << one;
      EXPECT_EQ(streamed(tokenizer, ids, true), one["skipped"].get<std::string>()) << one;
      ++sequences;
    }
  }
  EXPECT_GE(sequences, 1000u);
}

}  // namespace
}  // namespace nodewright
