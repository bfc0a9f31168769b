// What n-grams draft: a pure function of the tokens.
#include "engine/drafts.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

using Drafts = std::vector<int32_t>;

Drafts drafts_of(const Drafts& tokens, int64_t most = 3, int64_t longest = 3) {
  return ngram_draft(tokens, most, longest);
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

}  // namespace
}  // namespace nodewright
