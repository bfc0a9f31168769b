// Every page has one owner or none, and is given back once.
#include "engine/cache/page_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "runtime/error.h"

namespace nodewright {
namespace {

TEST(PagePool, HandsOutEveryPageOnceAndThenNothing) {
  PagePool pool(5);
  EXPECT_EQ(pool.total(), 5);
  std::set<int32_t> taken;
  for (int i = 0; i < 5; ++i) {
    const std::optional<int32_t> page = pool.take();
    ASSERT_TRUE(page);
    EXPECT_TRUE(*page >= 0 && *page < 5);
    EXPECT_TRUE(taken.insert(*page).second) << *page;
    EXPECT_TRUE(pool.is_taken(*page));
  }
  EXPECT_EQ(pool.taken(), 5);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.taken(), 5);
}

TEST(PagePool, StartsWithTheLowestPage) {
  PagePool pool(3);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 1);
}

TEST(PagePool, RefusesAPageGivenBackTwice) {
  PagePool pool(2);
  const int32_t page = *pool.take();
  pool.give_back(page);
  EXPECT_FALSE(pool.is_taken(page));
  EXPECT_THROW(pool.give_back(page), Error);
  EXPECT_EQ(pool.taken(), 0);
}

TEST(PagePool, RefusesAPageThatItDoesNotHave) {
  PagePool pool(2);
  pool.take();
  for (int32_t page : {-1, 1, 2, 1000}) EXPECT_THROW(pool.give_back(page), Error) << page;
  EXPECT_FALSE(pool.is_taken(-1));
  EXPECT_FALSE(pool.is_taken(2));
  EXPECT_EQ(pool.taken(), 1);
}

TEST(PagePool, OfNoPagesGivesNothing) {
  PagePool pool(0);
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.total(), 0);
}

TEST(PagePool, KeepsItsLedgerOverRandomUse) {
  constexpr int kPages = 17;
  PagePool pool(kPages);
  std::set<int32_t> mine;
  std::mt19937 random(20);
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      const std::optional<int32_t> page = pool.take();
      ASSERT_EQ(page.has_value(), mine.size() < kPages);
      if (page) {
        ASSERT_TRUE(mine.insert(*page).second);
      }
    } else if (!mine.empty()) {
      const auto chosen = std::next(mine.begin(), static_cast<long>(random() % mine.size()));
      pool.give_back(*chosen);
      mine.erase(chosen);
    }
    ASSERT_EQ(pool.taken(), static_cast<int64_t>(mine.size()));
    for (int32_t page = 0; page < kPages; ++page) ASSERT_EQ(pool.is_taken(page), mine.contains(page));
  }
}

}  // namespace
}  // namespace nodewright
