// Which automata are kept, by their bytes.
#include "serve/fields/grammar_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/text/tokenizer_goldens.h"

namespace nodewright {
namespace {

TEST(GrammarCache, KeepsWhatWasUsedLastAsFarAsItsBytesFit) {
  const auto words = std::make_shared<GrammarVocabulary>(load(byte_tokenizer()), 256);
  const auto made = [&](int i) { return std::make_shared<SharedGrammar>(words, fmt::format("[ab]{{100}}{}", i)); };
  const size_t each = made(0)->bytes();
  GrammarCache cache(4 * each + each / 2);
  for (int i = 0; i < 4; ++i) cache.add(std::to_string(i), made(i));
  EXPECT_EQ(cache.size(), 4u);
  EXPECT_NE(cache.find("0"), nullptr);  // used now
  cache.add("4", made(4));
  EXPECT_EQ(cache.size(), 4u);
  EXPECT_EQ(cache.find("1"), nullptr);
  EXPECT_NE(cache.find("0"), nullptr);
}

// An automaton grows where it is used; the next one that comes finds less room.
TEST(GrammarCache, CountsWhatAutomataHaveGrownTo) {
  const auto words = std::make_shared<GrammarVocabulary>(load(byte_tokenizer()), 256);
  const auto large = std::make_shared<SharedGrammar>(words, "[ab]*a[ab]{9}");
  GrammarCache cache(200'000);
  cache.add("large", large);
  cache.add("a", std::make_shared<SharedGrammar>(words, "a"));
  EXPECT_EQ(cache.size(), 2u);
  const std::shared_ptr<Grammar> automaton = large->of_this_thread();
  std::mt19937 random(3);
  for (int32_t state = automaton->start(); automaton->bytes() < 200'000;)
    state = automaton->after(state, random() % 2 == 0 ? 'a' : 'b');
  cache.add("b", std::make_shared<SharedGrammar>(words, "b"));
  EXPECT_EQ(cache.find("large"), nullptr);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(GrammarCache, KeepsTheOneAddedLastInAnyCase) {
  const auto words = std::make_shared<GrammarVocabulary>(load(byte_tokenizer()), 256);
  GrammarCache cache(1);
  cache.add("a", std::make_shared<SharedGrammar>(words, "a"));
  cache.add("b", std::make_shared<SharedGrammar>(words, "b"));
  EXPECT_EQ(cache.find("a"), nullptr);
  EXPECT_NE(cache.find("b"), nullptr);
}

}  // namespace
}  // namespace nodewright
