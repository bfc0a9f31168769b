// A watcher's view of the last ten seconds: quantiles by how often a time was seen, and nothing older.
#include "serve/metrics/recent_times.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

using std::chrono::seconds;

const RecentTimes::Clock::time_point kStart{seconds(1000)};

TEST(RecentTimes, WithoutObservationsThereIsNothing) {
  const auto found = RecentTimes().quantiles(kStart);
  EXPECT_EQ(found.count, 0);
  EXPECT_EQ(found.median, 0);
  EXPECT_EQ(found.p99, 0);
}

TEST(RecentTimes, QuantilesAreObservationsThatWereMade) {
  RecentTimes times;
  for (int i = 100; i >= 1; --i) times.add(i, 1, kStart);
  const auto found = times.quantiles(kStart);
  EXPECT_EQ(found.count, 100);
  EXPECT_EQ(found.median, 50);
  EXPECT_EQ(found.p99, 99);
}

TEST(RecentTimes, AStepOfSeveralTokensCountsAsOften) {
  RecentTimes times;
  times.add(1.0, 3, kStart);
  times.add(9.0, 1, kStart);
  const auto found = times.quantiles(kStart);
  EXPECT_EQ(found.count, 4);
  EXPECT_EQ(found.median, 1.0);
  EXPECT_EQ(found.p99, 9.0);
}

TEST(RecentTimes, WhatIsOlderThanTheWindowDoesNotCount) {
  RecentTimes times;
  times.add(5.0, 1, kStart);
  times.add(1.0, 1, kStart + seconds(8));
  EXPECT_EQ(times.quantiles(kStart + seconds(10)).count, 2);
  const auto found = times.quantiles(kStart + seconds(11));
  EXPECT_EQ(found.count, 1);
  EXPECT_EQ(found.p99, 1.0);
}

TEST(RecentTimes, ThereAreNeverMoreThanTheRingHolds) {
  RecentTimes times;
  for (size_t i = 0; i < RecentTimes::kMost; ++i) times.add(7.0, 1, kStart);
  for (size_t i = 0; i < RecentTimes::kMost - 1; ++i) times.add(2.0, 1, kStart);
  EXPECT_EQ(times.quantiles(kStart).count, static_cast<int64_t>(RecentTimes::kMost));
  EXPECT_EQ(times.quantiles(kStart).p99, 2.0);
  times.add(2.0, 1, kStart);
  EXPECT_EQ(times.quantiles(kStart).median, 2.0);
}

}  // namespace
}  // namespace nodewright
