// Gains out of noise, drawn from known distributions.
#include "bench/paired_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace nodewright {
namespace {

// How many of 1000 pairs of nine times look faster by more than three errors. Both drift together.
int seem_faster(double true_gain, double noise) {
  std::mt19937 random(5);
  std::normal_distribution<double> draw(0, noise);
  int count = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> before, now;
    for (int i = 0; i < 9; ++i) {
      const double drift = 3.0 * i;
      before.push_back(100 + drift + draw(random));
      now.push_back(100 + drift - true_gain + draw(random));
    }
    const PairedGain found = paired_gain(before, now);
    count += found.gain > 3 * found.error;
  }
  return count;
}

TEST(PairedTimes, AreRarelyFasterByChanceAndFoundWhereTheyAre) {
  EXPECT_LT(seem_faster(0, 1), 40);  // nine samples: heavier tails than a normal distribution's 1 in 740
  EXPECT_GT(seem_faster(2, 0.5), 900);
  EXPECT_EQ(seem_faster(0, 0), 0);
  EXPECT_EQ(seem_faster(1, 0), 1000);
}

TEST(PairedTimes, GiveTheMedianOfTheDifferences) {
  const std::vector<double> before{10, 11, 90}, now{9, 9, 9};
  EXPECT_DOUBLE_EQ(paired_gain(before, now).gain, 2);
  EXPECT_GT(paired_gain(before, now).error, 0);
  EXPECT_EQ(paired_gain({}, {}).gain, 0);
}

}  // namespace
}  // namespace nodewright
