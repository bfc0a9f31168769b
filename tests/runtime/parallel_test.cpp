// Every index once, in turns, and the first failure by number.
#include "runtime/host/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace nodewright {
namespace {

TEST(InParallel, CallsEveryIndexOnce) {
  for (const size_t threads : {0u, 1u, 3u, 8u})
    for (const size_t count : {0u, 1u, 2u, 100u}) {
      std::vector<std::atomic<int>> calls(count);
      in_parallel(count, threads, [&](size_t i) { ++calls[i]; });
      for (const auto& of_one : calls) EXPECT_EQ(of_one, 1) << threads << " threads, " << count;
    }
}

TEST(InParallel, OneThreadIsThisOneAndKeepsTheOrder) {
  std::vector<size_t> order;
  const auto self = std::this_thread::get_id();
  in_parallel(4, 1, [&](size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(InParallel, ThreadsWorkAtTheSameTime) {
  std::atomic<int> begun = 0;
  in_parallel(2, 2, [&](size_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();  // ends only beside the other
  });
  EXPECT_EQ(begun, 2);
}

TEST(InParallel, ThrowsTheFailureOfTheSmallestIndexAndBeginsNoMore) {
  std::atomic<int> begun = 0;
  std::string text;
  try {
    in_parallel(100, 2, [&](size_t i) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
      throw std::runtime_error(std::to_string(i));
    });
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "0");
  EXPECT_EQ(begun, 2);
}

}  // namespace
}  // namespace nodewright
