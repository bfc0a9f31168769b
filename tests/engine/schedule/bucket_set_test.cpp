#include "engine/schedule/bucket_set.h"

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace nodewright {
namespace {

using Fit = BucketChoice::Fit;

TEST(BucketSetTest, TheUsualListHasFiftyOneSizes) {
  const BucketSet set = BucketSet::up_to(512);
  ASSERT_EQ(set.sizes().size(), 51u);
  const std::vector<int> first(set.sizes().begin(), set.sizes().begin() + 6);
  EXPECT_EQ(first, (std::vector<int>{1, 2, 4, 8, 16, 24}));
  EXPECT_EQ(set.sizes()[34], 256);
  EXPECT_EQ(set.sizes()[35], 272);
  EXPECT_EQ(set.largest(), 512);
}

TEST(BucketSetTest, TheUsualListIsShortAndPadsLittleUpToManyRows) {
  EXPECT_EQ(BucketSet::up_to(4096).sizes().size(), 99u);
  const BucketSet set = BucketSet::up_to(8192);
  for (int rows = 1; rows <= 8192; ++rows) {
    const int padding = set.choose(rows).bucket - rows;
    ASSERT_LE(padding, rows <= 256 ? 7 : rows / 16) << rows;
  }
}

TEST(BucketSetTest, AListOfEverySizePadsNothing) {
  const BucketSet set = BucketSet::every(100);
  for (int rows = 1; rows <= 100; ++rows) EXPECT_EQ(set.choose(rows).fit, Fit::exact);
  EXPECT_EQ(set.choose(101).fit, Fit::none);
}

TEST(BucketSetTest, AnExtendedListKeepsItsSizesAndAddsFewLargerOnes) {
  const auto sizes = [](const BucketSet& set) { return std::vector<int>(set.sizes().begin(), set.sizes().end()); };
  EXPECT_EQ(sizes(BucketSet({1, 2, 10}).extended_to(50)), (std::vector<int>{1, 2, 10, 12, 16, 24, 32, 48, 50}));
  EXPECT_EQ(sizes(BucketSet({3}).extended_to(64)), (std::vector<int>{3, 8, 12, 16, 24, 32, 48, 64}));
  EXPECT_EQ(sizes(BucketSet({1, 64}).extended_to(64)), (std::vector<int>{1, 64}));
  EXPECT_EQ(sizes(BucketSet({1, 64}).extended_to(8)), (std::vector<int>{1, 64}));
}

TEST(BucketSetTest, TheMaximumIsAlwaysABucket) {
  for (int most = 1; most <= 600; ++most) {
    const BucketSet set = BucketSet::up_to(most);
    EXPECT_EQ(set.largest(), most);
    EXPECT_EQ(set.sizes().front(), 1);
    EXPECT_EQ(set.choose(most).fit, Fit::exact);
  }
}

TEST(BucketSetTest, AStepRunsInTheSmallestBucketThatHoldsIt) {
  const BucketSet set({16, 4, 1, 4});
  EXPECT_EQ(set.sizes().size(), 3u);
  const struct {
    int rows;
    Fit fit;
    int bucket;
    const char* reason;
  } cases[] = {{1, Fit::exact, 1, "1 rows fit bucket 1"},
               {2, Fit::padded, 4, "2 of 4 rows of bucket 4 are padding"},
               {4, Fit::exact, 4, "4 rows fit bucket 4"},
               {5, Fit::padded, 16, "11 of 16 rows of bucket 16 are padding"},
               {17, Fit::none, 0, "17 rows, and the largest of 3 buckets has 16"},
               {0, Fit::none, 0, "0 rows are no step"},
               {-3, Fit::none, 0, "-3 rows are no step"}};
  for (const auto& expected : cases) {
    const BucketChoice choice = set.choose(expected.rows);
    EXPECT_EQ(choice.fit, expected.fit) << expected.rows;
    EXPECT_EQ(choice.bucket, expected.bucket) << expected.rows;
    EXPECT_EQ(choice.reason, expected.reason);
  }
}

TEST(BucketSetTest, AnEmptyListAndSizesBelowOneAreRefused) {
  EXPECT_THROW(BucketSet({}), Error);
  EXPECT_THROW(BucketSet({4, 0}), Error);
  EXPECT_THROW(BucketSet::up_to(0), Error);
  EXPECT_THROW(BucketSet::every(0), Error);
}

}  // namespace
}  // namespace nodewright
