// The planned requests of a measured service, against the laws that they are drawn by; and the tail of a sample.
#include "bench/steps/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/spread.h"

namespace nodewright {
namespace {

constexpr int64_t kRequests = 20000;

TEST(Arrivals, GapsAreExponentialWithTheRateThatIsAskedFor) {
  const std::vector<PlannedRequest> requests = plan_arrivals(kRequests, 50, {{}}, {{}}, 1);
  double sum = 0, squares = 0, last = 0;
  for (const PlannedRequest& request : requests) {
    const double gap = request.arrival_s - last;
    ASSERT_GE(gap, 0);
    sum += gap, squares += gap * gap, last = request.arrival_s;
  }
  const double mean = sum / kRequests;
  // The mean of n exponential gaps is within 1 / sqrt(n) of itself, 0.7 %, and the deviation is as large as the mean.
  EXPECT_NEAR(mean, 0.02, 5 * 0.02 / std::sqrt(kRequests));
  EXPECT_NEAR(std::sqrt(squares / kRequests - mean * mean), mean, 0.05 * mean);
}

TEST(Arrivals, ComeAllAtOnceWithoutARate) {
  for (const PlannedRequest& request : plan_arrivals(10, 0, {{}}, {{}}, 1)) EXPECT_EQ(0, request.arrival_s);
}

TEST(Arrivals, LengthsFollowTheWeightsOfTheirRanges) {
  const LengthMix prompts = {{.least = 128, .most = 128, .weight = 3}, {.least = 1000, .most = 2000, .weight = 1}};
  EXPECT_EQ(2000, longest(prompts));
  double shorts = 0, sum_of_longs = 0;
  for (const PlannedRequest& request : plan_arrivals(kRequests, 0, prompts, {{.least = 7, .most = 7}}, 1)) {
    EXPECT_EQ(7, request.output);
    if (request.prompt == 128) {
      ++shorts;
      continue;
    }
    ASSERT_TRUE(request.prompt >= 1000 && request.prompt <= 2000) << request.prompt;
    sum_of_longs += static_cast<double>(request.prompt);
  }
  // Five deviations of a share of 3 in 4, and of the mean of a uniform range.
  EXPECT_NEAR(shorts / kRequests, 0.75, 5 * std::sqrt(0.75 * 0.25 / kRequests));
  EXPECT_NEAR(sum_of_longs / (kRequests - shorts), 1500, 5 * 289 / std::sqrt(kRequests / 4.0));
}

TEST(Arrivals, AreTheSameForTheSameSeedOnly) {
  const LengthMix mix = {{.least = 1, .most = 1000000}};
  const auto first = [&](uint64_t seed) { return plan_arrivals(1, 1, mix, mix, seed).front(); };
  EXPECT_EQ(first(1).prompt, first(1).prompt);
  EXPECT_EQ(first(1).arrival_s, first(1).arrival_s);
  EXPECT_NE(first(1).prompt, first(2).prompt);
  EXPECT_NE(first(1).arrival_s, first(2).arrival_s);
  EXPECT_EQ(random_prompt(50, 1000, 3), random_prompt(50, 1000, 3));
  EXPECT_NE(random_prompt(50, 1000, 3), random_prompt(50, 1000, 4));
  for (const int32_t token : random_prompt(1000, 7, 3)) EXPECT_TRUE(token >= 0 && token < 7);
}

TEST(TailOf, NamesTheLeastValuesThatAShareDoesNotExceed) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  EXPECT_EQ(100, tail_of(values).median);
  EXPECT_EQ(198, tail_of(values).p99);
  EXPECT_EQ(200, tail_of(values).worst);
  EXPECT_EQ(3, tail_of({3}).p99);
  EXPECT_EQ(0, tail_of({}).worst);
}

}  // namespace
}  // namespace nodewright
