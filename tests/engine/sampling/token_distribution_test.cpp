// Distributions of a next token, against values worked out by hand.
#include "engine/sampling/token_distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace nodewright {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TokenDistribution, HasTheProbabilitiesOfItsLogits) {
  for (const float shift : {0.0f, 1e4f, -1e4f}) {  // whose exponentials no double holds
    const std::vector<float> logits = {shift, shift + 1, shift - kInfinity, shift + 1};
    const TokenDistribution found(logits);
    const double sum = 1 + 2 * std::exp(1.0);
    EXPECT_NEAR(found.log_probability(0), -std::log(sum), 1e-11);
    EXPECT_NEAR(found.log_probability(1), 1 - std::log(sum), 1e-11);
    EXPECT_EQ(found.log_probability(2), -kInfinity);
    EXPECT_EQ(found.likeliest(), 1u);
  }
}

TEST(TokenDistribution, DivergesFromAnotherByTheMeanOfTheLogarithmsOfTheirRatio) {
  const auto log_of = [](double p) { return static_cast<float>(std::log(p)); };
  const std::vector<float> quarter = {log_of(0.25), log_of(0.75)}, half = {0, 0}, sure = {0, -kInfinity};
  const TokenDistribution p(quarter), q(half), one(sure);
  EXPECT_NEAR(p.divergence_to(q), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-7);
  EXPECT_NEAR(q.divergence_to(p), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-7);
  EXPECT_EQ(p.divergence_to(p), 0);
  EXPECT_NEAR(one.divergence_to(q), std::log(2.0), 1e-12);
  EXPECT_EQ(q.divergence_to(one), static_cast<double>(kInfinity));
}

}  // namespace
}  // namespace nodewright
