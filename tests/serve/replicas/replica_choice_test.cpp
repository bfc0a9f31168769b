// Which replica a request goes to: fewest tokens, room, and when a cached prefix counts for more.
#include "serve/replicas/replica_choice.h"

#include <gtest/gtest.h>

#include <vector>

#include "serve/replicas/sleep_outcomes.h"

namespace nodewright {
namespace {

// One with rows and pages to spare.
ReplicaOffer offer(int64_t tokens, int64_t outputs = 1, int64_t cached_pages = 0) {
  return {.load = {.outputs = outputs,
                   .rows = 8,
                   .tokens = tokens,
                   .free_pages = 100,
                   .max_context = 4096,
                   .page_tokens = 64,
                   .most_pages = 64},
          .cached_pages = cached_pages};
}

constexpr PrefixPreference kPreference{.least_pages = 4, .most_more_tokens = 1000};

std::optional<size_t> chosen(const std::vector<ReplicaOffer>& offers, const ReplicaDemand& demand = {100, 1}) {
  return choose_replica(offers, demand, kPreference);
}

TEST(ReplicaChoice, TakesTheFewestTokensAndTheLowestNumberOfEquals) {
  EXPECT_EQ(chosen({offer(30), offer(20), offer(20)}), 1u);
  EXPECT_EQ(chosen({offer(0, 0), offer(0, 0)}), 0u);
  EXPECT_EQ(chosen({offer(300)}), 0u);
  EXPECT_EQ(chosen({}), std::nullopt);
}

TEST(ReplicaChoice, LetsARequestWaitWhereNobodyHasRoom) {
  EXPECT_EQ(chosen({offer(10, 8), offer(900, 7)}), 1u) << "the first has no row";
  EXPECT_EQ(chosen({offer(10, 8), offer(900, 8)}), std::nullopt);
  ReplicaOffer unborn = offer(0, 0), asleep = offer(0, 0);
  unborn.load.rows = 0;
  asleep.serves = false;
  EXPECT_EQ(chosen({unborn, asleep}), std::nullopt);
}

TEST(ReplicaChoice, CountsPagesUnlessThereIsNothingElseToDo) {
  ReplicaOffer few = offer(10);
  few.load.free_pages = 2;
  EXPECT_EQ(chosen({few, offer(900)}, {127, 1}), 0u) << "127 tokens and one more have two pages";
  EXPECT_EQ(chosen({few, offer(900)}, {128, 1}), 1u);
  EXPECT_EQ(chosen({few, offer(900)}, {64, 2}), 1u) << "each output has a last page of its own";
  few.cached_pages = 1;
  EXPECT_EQ(chosen({few, offer(900)}, {128, 1}), 0u) << "a cached page is there already";
  few.load.outputs = 0;
  EXPECT_EQ(chosen({few, offer(900)}, {4000, 1}), 0u) << "what its own cache cannot hold it must say itself";
  few.load.outputs = 1;
  few.load.free_pages = -1;
  EXPECT_EQ(chosen({few}, {1, 1}), std::nullopt) << "its requests wait for pages";
}

TEST(ReplicaChoice, PrefersACachedPrefixUpToSoManyMoreTokens) {
  EXPECT_EQ(chosen({offer(0), offer(1000, 1, 4)}), 1u);
  EXPECT_EQ(chosen({offer(0), offer(1001, 1, 4)}), 0u);
  EXPECT_EQ(chosen({offer(0), offer(10, 1, 3)}), 0u) << "three pages are too few";
  EXPECT_EQ(chosen({offer(0), offer(20, 1, 4), offer(30, 1, 5)}), 2u) << "the longest";
  EXPECT_EQ(chosen({offer(0), offer(30, 1, 5), offer(20, 1, 5)}), 2u) << "of equals the one with fewer tokens";
  EXPECT_EQ(chosen({offer(0, 1, 5), offer(20, 1, 5)}), 0u);
  EXPECT_EQ(chosen({offer(500), offer(20, 8, 9)}), 0u) << "one without room is none";
}

TEST(LoopLoad, AddsWhatARequestBrings) {
  LoopLoad load = offer(0, 0).load;
  AskedRequest asked;
  asked.spec = {.prompt = std::vector<int32_t>(130), .max_tokens = 20};
  asked.outputs.resize(3);
  load.add(asked);
  EXPECT_EQ(load.outputs, 3);
  EXPECT_EQ(load.tokens, 130 + 3 * 20);
  EXPECT_EQ(load.free_pages, 100 - (3 + 2));
  asked.spec.max_tokens = 1'000'000;  // more than the context has room for
  asked.outputs.resize(1);
  load.add(asked);
  EXPECT_EQ(load.tokens, 190 + 4096);
  LoopLoad unknown;
  unknown.add(asked);
  EXPECT_EQ(unknown.free_pages, 0);
}

TEST(SleepOutcomes, OfSeveralReplicasAreOne) {
  const SleepOutcome done{
      .level = SleepLevel::weights_on_host,
      .change = {.free_before = 1, .free_after = 10, .seconds = 2, .parts = {{"free_engine", 1.5}}}};
  SleepOutcome slower = done;
  slower.change.parts = {{"free_engine", 2.5}, {"free_weights", 0.5}};
  slower.change.seconds = 3;
  const std::vector<SleepOutcome> both{done, slower, {.end = SleepEnd::not_now}};
  const SleepOutcome sum = combined(both);
  EXPECT_EQ(sum.end, SleepEnd::done);
  EXPECT_EQ(sum.level, SleepLevel::weights_on_host) << "one that is not there does not count";
  EXPECT_EQ(sum.change.free_after, 20u);
  EXPECT_EQ(sum.change.seconds, 3);
  ASSERT_EQ(sum.change.parts.size(), 2u);
  EXPECT_EQ(sum.change.parts[0].seconds, 2.5);
  const SleepOutcome off{.end = SleepEnd::called_off}, failed{.end = SleepEnd::failed, .problem = "no memory"};
  EXPECT_EQ(combined(std::vector{done, off}).end, SleepEnd::called_off);
  EXPECT_EQ(combined(std::vector{done, off}).level, SleepLevel::awake);
  EXPECT_EQ(combined(std::vector{off, done, failed}).end, SleepEnd::failed);
  EXPECT_EQ(combined(std::vector{off, done, failed}).problem, "replica 2: no memory");
  EXPECT_EQ(combined(std::vector{failed}).problem, "no memory");
  EXPECT_EQ(combined(std::vector<SleepOutcome>(2, {.end = SleepEnd::not_now})).end, SleepEnd::not_now);
}

}  // namespace
}  // namespace nodewright
