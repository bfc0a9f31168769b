// The tree of many texts against the texts themselves.
#include "text/grammar/literal_choices.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/work_budget.h"
#include "text/grammar/grammar.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/schema/json_schema.h"

namespace nodewright {
namespace {

// Whether the expression matches the whole text.
bool matches(const BytePattern& pattern, const std::string& text) {
  const auto with_free = [&](std::set<int32_t> states) {
    std::vector<int32_t> open(states.begin(), states.end());
    while (!open.empty()) {
      const int32_t one = open.back();
      open.pop_back();
      for (const int32_t to : pattern.states[static_cast<size_t>(one)].free)
        if (states.insert(to).second) open.push_back(to);
    }
    return states;
  };
  std::set<int32_t> at = with_free({pattern.start});
  for (const char c : text) {
    std::set<int32_t> next;
    for (const int32_t one : at)
      for (const BytePattern::Edge& edge : pattern.states[static_cast<size_t>(one)].edges)
        if (edge.first <= static_cast<uint8_t>(c) && static_cast<uint8_t>(c) <= edge.last) next.insert(edge.to);
    at = with_free(next);
  }
  return at.contains(pattern.accept);
}

TEST(LiteralChoices, AFewStandSideBySide) {
  EXPECT_EQ(literals_pattern({"yes.", "no"}), R"((?:yes\.|no))");
  EXPECT_EQ(literals_rule({"yes", "\"no\""}), R"x(("yes" | "\"no\""))x");
  EXPECT_EQ(literals_pattern({"yes"}), "(?:yes)");
}

TEST(LiteralChoices, ManyShareTheirBeginnings) {
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.push_back("value-" + std::to_string(i));
  EXPECT_TRUE(literals_pattern(texts).starts_with("(?:value-(?:0|1(?:0|1|2")) << literals_pattern(texts);
  EXPECT_TRUE(literals_rule(texts).starts_with(R"(("value-" ("0" | "1" ("0" | "1" | "2")")) << literals_rule(texts);
}

// Texts of few letters, so that many are the beginning of others, with characters of several bytes that begin alike.
TEST(LiteralChoices, MatchTheTextsAndNothingElse) {
  const std::vector<std::string> letters{"a", "b", "\xc3\xa9", "\xc3\xa8", "\xe2\x82\xac", "|", "\""};
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    std::set<std::string> texts;
    const auto made = [&] {
      std::string text;
      for (size_t i = random() % 6 + 1; i > 0; --i) text += letters[random() % letters.size()];
      return text;
    };
    while (texts.size() < 60) texts.insert(made());
    const BytePattern pattern = parse_byte_pattern(literals_pattern({texts.begin(), texts.end()}));
    for (const std::string& text : texts) EXPECT_TRUE(matches(pattern, text)) << text;
    for (int i = 0; i < 200; ++i) {
      const std::string other = made();
      EXPECT_EQ(matches(pattern, other), texts.contains(other)) << other;
    }
  }
}

// Each the beginning of the next one: the tree would be as deep as they are many.
TEST(LiteralChoices, ATreeIsOnlySoDeep) {
  std::vector<std::string> texts;
  for (size_t i = 1; i <= 300; ++i) texts.push_back(std::string(i, 'a'));
  const BytePattern pattern = parse_byte_pattern(literals_pattern(texts));
  for (const size_t length : {1, 48, 49, 299, 300}) EXPECT_TRUE(matches(pattern, std::string(length, 'a'))) << length;
  EXPECT_FALSE(matches(pattern, std::string(301, 'a')));
}

TEST(LiteralChoices, TwentyThousandValuesOfASchemaAreFollowedWithinItsWork) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array(), words = numbers;
  for (int i = 0; i < 19'990; ++i) {
    numbers.push_back(i);
    words.push_back("value-" + std::to_string(i));
  }
  for (const nlohmann::ordered_json& values : {numbers, words}) {
    const WorkBudget budget(UINT64_MAX - 1);
    const BytePattern pattern = parse_byte_pattern(json_schema_pattern({{"enum", values}}));
    EXPECT_LT(budget.spent(), 4'000'000u);
    EXPECT_LT(pattern.states.size(), 120'000u);
    EXPECT_TRUE(matches(pattern, values.back().dump()));
    EXPECT_FALSE(matches(pattern, "19990"));
  }
}

}  // namespace
}  // namespace nodewright
