// What is said of the step that times its nodes.
#include "bench/graph/node_bench.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

std::string words_of(double twin_us, double plain_us) {
  PlanTimings timings;
  timings.step_us = twin_us;
  timings.plain_step_us = plain_us;
  return twin_words(timings);
}

TEST(NodeBench, NeverSaysThatTheTwinTakesANegativeTimeLonger) {
  EXPECT_EQ(words_of(105.2, 100), "5.2% longer");
  EXPECT_EQ(words_of(94.8, 100), "5.2% less");
  EXPECT_EQ(words_of(100, 100), "0.0% longer");
}

}  // namespace
}  // namespace nodewright
