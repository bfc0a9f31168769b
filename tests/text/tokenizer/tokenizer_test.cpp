// The tokenizer against the `tokenizers` library (golden files), its speed, and its parts against slow ones.
#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "runtime/error.h"
#include "tests/support/processor_time.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/tokenizer/tokens/normal_text.h"
#include "text/unicode/normal_forms.h"

namespace nodewright {
namespace {

using Ids = std::vector<TokenId>;
using Json = nlohmann::json;

class GoldenTokenizer : public testing::TestWithParam<std::string> {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::from_file(golden_tokenizer(GetParam()));
  const Json cases_ = golden_cases(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Families, GoldenTokenizer, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

TEST_P(GoldenTokenizer, EncodesAsTheLibraryDoes) {
  ASSERT_GE(cases_["encode"].size(), 250u);
  expect_encoded(tokenizer_, cases_);
}

TEST_P(GoldenTokenizer, DecodesAsTheLibraryDoes) {
  ASSERT_GE(cases_["decode"].size(), 200u);
  expect_decoded(tokenizer_, cases_);
}

TEST_P(GoldenTokenizer, NeverMakesASpecialTokenFromPlainText) {
  for (const auto& one : cases_["encode"]) {
    for (const TokenId id : tokenizer_.encode(text_of(one))) {
      if (GetParam() == "fallback" && id == tokenizer_.token_to_id("<unk>"))
        continue;  // what a letter without token is
      EXPECT_FALSE(tokenizer_.is_special(id)) << one;
    }
  }
}

TEST_P(GoldenTokenizer, KnowsTheIdAndTheBytesOfEveryTokenInTheFile) {
  const Json file = read_json(golden_tokenizer(GetParam()));
  std::size_t largest = 0;
  const bool byte_level = file["decoder"]["type"] == "ByteLevel";
  const auto bytes_of = [&](const std::string& spelling) -> std::string {
    if (byte_level) return decoded_bytes(spelling);
    if (const auto byte = byte_of_fallback_token(spelling)) return std::string(1, *byte);
    return replace_all(replace_all(spelling, "\u2581", " "), "\u2014", GetParam() == "fallback" ? "--" : "\u2014");
  };
  const auto check = [&](const std::string& spelling, const std::string& decoded, TokenId id) {
    EXPECT_EQ(tokenizer_.token_to_id(spelling), id);
    EXPECT_EQ(tokenizer_.id_to_bytes(id), bytes_of(decoded));
    largest = std::max<std::size_t>(largest, static_cast<std::size_t>(id));
  };
  for (const auto& [spelling, id] : file["model"]["vocab"].items()) check(spelling, spelling, id);
  for (const auto& token : file["added_tokens"]) {
    const std::string content = token["content"];
    check(content, token["normalized"] ? to_normal_form(content, NormalForm::nfc) : content, token["id"]);
    EXPECT_EQ(tokenizer_.is_special(token["id"]), token["special"].get<bool>());
  }
  EXPECT_EQ(tokenizer_.vocab_size(), largest + 1);
  EXPECT_EQ(tokenizer_.token_to_id("no such token"), std::nullopt);
}

TEST_P(GoldenTokenizer, EncodesFromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const auto& one : cases_["encode"]) wrong[t] += tokenizer_.encode(text_of(one)) != one["ids"].get<Ids>();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, TakesAWholeWordFromTheVocabularyOnlyIfMergesAreIgnored) {
  Json file = read_json(golden_tokenizer("llama3"));
  const TokenId whole = file["model"]["vocab"]["zqzq"];
  EXPECT_EQ(load(file).encode("zqzq"), Ids{whole});
  file["model"]["ignore_merges"] = false;
  EXPECT_GT(load(file).encode("zqzq").size(), 1u);
}

TEST(Tokenizer, GivesTheBytesOfACharacterWithoutTokenOnlyIfEachHasOne) {
  Json file = character_tokenizer();
  EXPECT_EQ(load(file).encode("a\u20AC"), (Ids{257, 0xE2, 0x82, 0xAC}));
  file["model"]["vocab"].erase("<0x82>");
  EXPECT_EQ(load(file).encode("a\u20AC"), (Ids{257, 256}));
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(load(file).encode("a\u20AC"), Ids{257});
}

TEST(Tokenizer, FusesUnknownCharactersInARowIfAsked) {
  Json file = character_tokenizer();
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(load(file).encode("a\u20AC\u20ACb\u20AC"), (Ids{257, 256, 258, 256}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(load(file).encode("a\u20AC\u20ACb\u20AC"), (Ids{257, 256, 256, 258, 256}));
}

TEST(Tokenizer, DecodesARunOfBytesAsAWhole) {
  const Tokenizer tokenizer = load(character_tokenizer());
  EXPECT_EQ(tokenizer.decode(Ids{257, 0xE2, 0x82, 0xAC, 258}), "a\u20ACb");
  EXPECT_EQ(tokenizer.decode(Ids{0xE2, 0x82, 0xAC, 0xFF}), "\uFFFD\uFFFD\uFFFD\uFFFD");  // one bad byte spoils all
  EXPECT_EQ(tokenizer.decode(Ids{0xFF, 257, 'x', 0xE2, 0x82, 257}), "\uFFFDa\uFFFD\uFFFD\uFFFDa");
}

TEST(Tokenizer, ReadsMergesAsStringsOrAsPairs) {
  for (const Json& merge : {Json("a b"), Json::array({"a", "b"})}) {
    Json file = byte_tokenizer();
    file["model"]["vocab"]["ab"] = 256;
    file["model"]["merges"] = Json::array({merge});
    EXPECT_EQ(load(file).encode("aab"), (Ids{'a', 256}));
  }
}

TEST(Tokenizer, KeepsTheIdsOfTheFileWhereTheVocabularyHasHoles) {
  Json file = byte_tokenizer();
  file["added_tokens"] = Json::array({added_token(300, "<x>", false)});
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(tokenizer.vocab_size(), 301u);
  EXPECT_EQ(tokenizer.encode("a<x>"), (Ids{'a', 300}));
  EXPECT_THROW(tokenizer.id_to_bytes(299), Error);
  EXPECT_EQ(tokenizer.decode(Ids{'a', 299, 300, 301, 1 << 20, 'b'}), "a<x>b");  // and a padded vocabulary's
}

TEST(Tokenizer, GivesAnErrorForATextOverTheLimitOrTooUnusualForTheExpression) {
  const Tokenizer tokenizer = Tokenizer::from_file(golden_tokenizer("llama3"));
  EXPECT_THROW(tokenizer.encode(std::string((std::size_t{256} << 20) + 1, 'a')), Error);
  EXPECT_THROW(tokenizer.encode(std::string(11'000'000, ' ') + "x"),
               Error);  // more than Oniguruma's 10,000,000 retries
}

TEST(Tokenizer, DoesNotMergePlainTextIntoASpecialToken) {
  Json file = byte_tokenizer();
  file["model"]["vocab"]["ab"] = 256;
  file["model"]["merges"] = Json::array({"a b"});
  file["model"]["ignore_merges"] = true;
  file["added_tokens"] = Json::array({added_token(256, "ab", true)});
  const Tokenizer tokenizer = load(file);
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{'a', 'b'}));
  EXPECT_EQ(tokenizer.encode("ab", {.parse_special = true}), Ids{256});
}

TEST(Tokenizer, NamesTheIdAndTheVocabularySizeOfAnUnknownToken) {
  const Tokenizer tokenizer = load(byte_tokenizer());
  for (const TokenId id : {-1, 256, 2147483647}) {
    try {
      tokenizer.id_to_bytes(id);
      ADD_FAILURE() << id << " has bytes";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(id)), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("256"), std::string::npos) << error.what();
    }
  }
}

TEST(Tokenizer, MergesAMegabyteOfOneLetterInUnderASecond) {
  Json file = byte_tokenizer();
  std::string token = "a";
  for (int id = 256; id < 266; ++id) {  // aa, aaaa, ... 1024 letters
    file["model"]["merges"].push_back(token + " " + token);
    token += token;
    file["model"]["vocab"][token] = id;
  }
  const Tokenizer tokenizer = load(file);
  Ids ids;
  EXPECT_LT(test::seconds_of([&] { ids = tokenizer.encode(std::string(1 << 20, 'a')); }), test::allowed_seconds(1));
  EXPECT_EQ(ids, Ids(1024, 265));
}

TEST(Tokenizer, MergesAMegabyteOfOneLetterInUnderASecondAsOneWord) {
  Json file = character_tokenizer();
  std::string token = "a";
  for (int id = 259; id < 269; ++id) {
    file["model"]["merges"].push_back({token, token});
    token += token;
    file["model"]["vocab"][token] = id;
  }
  const Tokenizer tokenizer = load(file);
  Ids ids;
  EXPECT_LT(test::seconds_of([&] { ids = tokenizer.encode(std::string(1 << 20, 'a')); }), test::allowed_seconds(1));
  EXPECT_EQ(ids, Ids(1024, 268));
}

TEST(Tokenizer, EncodesAMegabyteOfAnyOneCharacterInUnderASecond) {
  for (const auto& family : kFamilies) {
    const Tokenizer tokenizer = Tokenizer::from_file(golden_tokenizer(family));
    const bool all = family == "llama3" || family == "gemma";
    for (const std::string unit : {"a", " ", "\n", "1", "!", "'", "<", "<|", "\xCC\x81\xCC\xA3", "\xFF", " \n"}) {
      if (!all && unit != "a" && unit != " ") continue;
      std::string text;
      while (text.size() < 1 << 20) text += unit;
      Ids ids;
      EXPECT_LT(test::seconds_of([&] { ids = tokenizer.encode(text); }), test::allowed_seconds(1))
          << family << " '" << unit << "'";
      EXPECT_GT(ids.size(), 1u);
    }
  }
}

TEST(Bpe, MergesInTheOrderOfASlowSearchForTheSmallestRank) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Bpe bpe;
    std::map<std::pair<TokenId, TokenId>, std::pair<int, TokenId>> merges;  // rank, result
    std::vector<std::string> spelling = {"a", "b", "c"};
    for (TokenId id = 0; id < 3; ++id) bpe.add_token(spelling[id], id);
    std::map<std::string, TokenId> known = {{"a", 0}, {"b", 1}, {"c", 2}};
    for (int rank = 0; rank < 40; ++rank) {  // later pairs may spell a token that an earlier pair makes
      const auto left = static_cast<TokenId>(random() % spelling.size());
      const auto right = static_cast<TokenId>(random() % spelling.size());
      const std::string merged = spelling[left] + spelling[right];
      if (merged.size() > 8 || merges.contains({left, right})) continue;
      const auto [entry, is_new] = known.try_emplace(merged, static_cast<TokenId>(spelling.size()));
      if (!is_new) continue;
      spelling.push_back(merged);
      merges[{left, right}] = {static_cast<int>(merges.size()), entry->second};
      bpe.add_merge(left, right, entry->second);
    }
    std::string word;
    for (int i = 0; i < 60; ++i) word += static_cast<char>('a' + random() % 3);

    Ids slow;
    for (const char letter : word) slow.push_back(letter - 'a');
    for (;;) {
      std::size_t best = slow.size();
      for (std::size_t i = 0; i + 1 < slow.size(); ++i) {
        const auto found = merges.find({slow[i], slow[i + 1]});
        if (found == merges.end()) continue;
        if (best == slow.size() || found->second.first < merges.at({slow[best], slow[best + 1]}).first) best = i;
      }
      if (best == slow.size()) break;
      slow[best] = merges.at({slow[best], slow[best + 1]}).second;
      slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    Ids ids;
    Bpe::Scratch scratch;
    bpe.append_ids(word, ids, scratch);
    EXPECT_EQ(ids, slow) << word;
  }
}

TEST(Normalizer, SortsALongRunOfMarksByCombiningClassAndKeepsEqualOnesInOrder) {
  std::string text = "x", below, above;
  for (int i = 0; i < 1000; ++i) {
    text += "\xCC\x81\xCC\xA3";  // U+0301 (class 230), U+0323 (class 220)
    below += "\xCC\xA3";
    above += "\xCC\x81";
  }
  EXPECT_EQ(to_normal_form(text, NormalForm::nfc), "x" + below + above);  // x has no composite with either
}

}  // namespace
}  // namespace nodewright
