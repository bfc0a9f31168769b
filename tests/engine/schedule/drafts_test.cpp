// What n-grams draft: a function of the tokens alone, as a search through all of them finds it.
#include "engine/schedule/drafts.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/schedule/draft_counts.h"
#include "tests/support/processor_time.h"

namespace nodewright {
namespace {

using Drafts = std::vector<int32_t>;

Drafts drafts_of(const Drafts& tokens, int64_t most = 3, int64_t longest = 3) {
  NgramIndex index(longest);
  for (const int32_t token : tokens) index.append(token);
  return index.draft(most);
}

// The latest of the longest n-grams before the end, by looking at every place.
Drafts searched(const Drafts& tokens, size_t most, size_t longest) {
  size_t follows = 0, best = 0;
  for (size_t end = tokens.size(); end-- > 1 && best < longest;) {
    size_t length = 0;
    while (length < longest && length < end && tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) ++length;
    if (length > best) best = length, follows = end;
  }
  Drafts drafts;
  for (size_t i = 0; best > 0 && i < most; ++i)
    drafts.push_back(follows + i < tokens.size() ? tokens[follows + i] : drafts[follows + i - tokens.size()]);
  return drafts;
}

TEST(NgramDraft, IsWhatFollowedTheEndEarlier) { EXPECT_EQ(drafts_of({5, 6, 7, 8, 9, 1, 5, 6}), (Drafts{7, 8, 9})); }

TEST(NgramDraft, PrefersALongerNgramToALaterOne) {
  EXPECT_EQ(drafts_of({1, 2, 3, 40, 9, 3, 50, 1, 2, 3}, 1), (Drafts{40}));
  EXPECT_EQ(drafts_of({1, 2, 3, 40, 9, 3, 50, 1, 2, 3}, 1, 1), (Drafts{50}));
}

TEST(NgramDraft, TakesTheLatestOfEqualOccurrences) {
  EXPECT_EQ(drafts_of({3, 40, 8, 3, 50, 3}, 1), (Drafts{50}));
  // Longer ones than the longest n-gram count as equal.
  EXPECT_EQ(drafts_of({1, 2, 3, 4, 70, 2, 3, 4, 80, 1, 2, 3, 4}, 1), (Drafts{80}));
}

TEST(NgramDraft, GoesOnWithItselfPastTheEnd) {
  EXPECT_EQ(drafts_of({4, 4}, 5), (Drafts{4, 4, 4, 4, 4}));
  EXPECT_EQ(drafts_of({9, 1, 2, 3, 1, 2, 3}, 7), (Drafts{1, 2, 3, 1, 2, 3, 1}));
}

TEST(NgramDraft, IsEmptyWhereNothingRepeats) {
  EXPECT_EQ(drafts_of({}), Drafts{});
  EXPECT_EQ(drafts_of({1}), Drafts{});
  EXPECT_EQ(drafts_of({1, 2, 3}), Drafts{});
  EXPECT_EQ(drafts_of({1, 2, 1}, 0), Drafts{});
}

TEST(NgramDraft, IsThatOfASearchThroughAllTokensAfterEachOfThem) {
  std::mt19937 random(3);
  for (const size_t longest : {1, 2, 3, 5})
    for (const unsigned kinds : {2u, 5u, 40u}) {
      NgramIndex index(static_cast<int64_t>(longest));
      Drafts tokens;
      for (int i = 0; i < 200; ++i) {
        tokens.push_back(static_cast<int32_t>(random() % kinds));
        index.append(tokens.back());
        ASSERT_EQ(index.draft(6), searched(tokens, 6, longest)) << "token " << i;
      }
    }
}

// A search through the tokens would look at 2 * 10^10 of them. Of 200 000 tokens none but the first recurs.
TEST(NgramDraft, TakesNoLongerInALongContext) {
  constexpr int32_t kTokens = 200'000, kDrafts = 100'000;
  NgramIndex index(3);
  for (int32_t token = 0; token < kTokens; ++token) index.append(token);
  index.append(0);
  const double seconds = test::seconds_of([&] {
    for (int32_t i = 0; i < kDrafts; ++i) ASSERT_EQ(index.draft(1), Drafts{1});
  });
  EXPECT_LT(seconds, test::allowed_seconds(0.2));
}

TEST(CountDrafts, CountsAllTokensButTheLastOfEachRequestThatHadDrafts) {
  const std::vector<CommittedToken> tokens{{1, 7, {}}, {2, 7, {}}, {2, 8, {}}, {4, 9, {}}, {4, 9, {}}, {2, 9, {}}};
  const DraftCounts counts = count_drafts({{1, 3}, {2, 2}, {3, 5}}, tokens);
  EXPECT_EQ(counts.drafted, 10);
  EXPECT_EQ(counts.accepted, 2);  // both of request 2
}

// Each row beside each token would be 10^10 comparisons.
TEST(CountDrafts, TakesNoTimeInProportionToRowsTimesTokens) {
  constexpr int32_t kRows = 100'000;
  std::map<RequestId, int64_t> drafted;
  std::vector<CommittedToken> tokens;
  for (int32_t row = 0; row < kRows; ++row) {
    drafted[static_cast<RequestId>(row)] = 1;
    tokens.push_back({static_cast<RequestId>(row), 7, {}});
  }
  DraftCounts counts;
  const double seconds = test::seconds_of([&] { counts = count_drafts(drafted, tokens); });
  EXPECT_EQ(counts.accepted, 0);
  EXPECT_LT(seconds, test::allowed_seconds(0.2));
}

}  // namespace
}  // namespace nodewright
