// Who gets a worker when there are fewer of them than jobs, and what is left when one of them hangs. Jobs are held by
// latches: no test knows how fast the machine is.
#include "serve/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nodewright {
namespace {

using namespace std::chrono_literals;

// A pool whose workers are found slow by nobody.
WorkPoolOptions patient(size_t threads, size_t most_waiting) {
  return {.threads = threads, .most_waiting = most_waiting, .most_slow = 0};
}

TEST(WorkPool, TakesAsManyJobsAsMayWaitBesideThoseThatRun) {
  std::latch runs(1), may_end(1);
  std::atomic<int> done = 0;
  {
    WorkPool pool(patient(1, 4));
    EXPECT_TRUE(pool.post([&] {
      runs.count_down();
      may_end.wait();
    }));
    runs.wait();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.post([&] { ++done; }));
    EXPECT_FALSE(pool.post([&] { ++done; })) << "a client has three quarters";
    EXPECT_TRUE(pool.post([&] { ++done; }, "another"));
    EXPECT_FALSE(pool.post([&] { ++done; }, "a third")) << "all places are taken";
    may_end.count_down();
  }
  EXPECT_EQ(done, 4);
}

TEST(WorkPool, ClientsTakeTurns) {
  std::latch runs(1), may_end(1), all(5);
  std::string order;  // of one thread
  WorkPool pool(patient(1, 100));
  pool.post([&] {
    runs.count_down();
    may_end.wait();
  });
  runs.wait();
  for (const char* word : {"a1", "a2", "a3"}) pool.post([&, word] { order += word, all.count_down(); }, "a");
  for (const char* word : {"b1", "b2"}) pool.post([&, word] { order += word, all.count_down(); }, "b");
  may_end.count_down();
  all.wait();
  EXPECT_EQ(order, "a1b1a2b2a3");
}

TEST(WorkPool, AJobThatTakesLongKeepsNobodyWaiting) {
  std::latch may_end(1), others(20);
  WorkPool pool({.threads = 2, .most_slow = 4, .slow_after = 1ms});
  for (int i = 0; i < 4; ++i) pool.post([&] { may_end.wait(); }, std::to_string(i));
  for (int i = 0; i < 20; ++i) pool.post([&] { others.count_down(); }, "another");
  others.wait();                                      // would never end
  while (pool.slow() < 4) std::this_thread::yield();  // the last of them may have begun after the others
  EXPECT_GT(pool.longest(), 0s);
  may_end.count_down();
}

TEST(WorkPool, AClientsLongJobsLeaveHalfOfTheThreadsToOthers) {
  std::latch may_end(1), other(1);
  std::atomic<int> hung = 0;
  WorkPool pool({.threads = 2, .most_slow = 4, .slow_after = 1ms});
  for (int i = 0; i < 10; ++i) pool.post([&] { ++hung, may_end.wait(); }, "one");
  pool.post([&] { other.count_down(); }, "another");
  other.wait();
  EXPECT_LE(hung, 3);
  may_end.count_down();
  EXPECT_TRUE(pool.stop(1h));
  EXPECT_EQ(hung, 10);
}

TEST(WorkPool, StopsWithoutAJobThatHangsAndTellsJobsThatItStops) {
  std::latch may_end(1), runs(1);
  std::atomic<bool> told = false;
  WorkPool pool({.threads = 1, .most_slow = 1, .slow_after = 1ms});
  pool.post([&] {
    runs.count_down();
    may_end.wait();
  });
  runs.wait();
  EXPECT_FALSE(pool.stop(1ms));
  EXPECT_TRUE(pool.is_stopping());
  EXPECT_FALSE(pool.post([] {}));
  may_end.count_down();
  EXPECT_TRUE(pool.stop(1h));
  WorkPool second(patient(1, 4));
  std::latch second_runs(1);
  second.post([&] {
    second_runs.count_down();
    while (!second.is_stopping()) std::this_thread::yield();
    told = true;
  });
  second_runs.wait();
  EXPECT_TRUE(second.stop(1h));
  EXPECT_TRUE(told);
}

TEST(WorkPool, CountsNoJobAsHungThatMayTakeAsLongAsItLikes) {
  std::latch may_end(1), runs(1);
  WorkPool pool(patient(1, 4));
  pool.post(
      [&] {
        runs.count_down();
        may_end.wait();
      },
      "", false);
  runs.wait();
  EXPECT_EQ(pool.longest(), 0s);
  may_end.count_down();
}

}  // namespace
}  // namespace nodewright
