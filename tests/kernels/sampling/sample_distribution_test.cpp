// What `sample` draws, against the distribution that its settings define in double: Pearson's statistic over a million
// draws a shape of logits on a GPU and by the host's twin, over some hundreds on the CPU driver. A reference with one
// token more in top-k, or with the limits in another order, does not fit the same draws.
#include <gtest/gtest.h>

#include "tests/kernels/sampling/sample_case.h"

namespace nodewright::test::sample_distribution_test {
namespace {

constexpr size_t kVocab = 40;

std::vector<float> logits_of_shape(int shape) {
  std::vector<float> logits;
  for (size_t i = 0; i < kVocab; ++i) {
    const double at = static_cast<double>(i * 17 % kVocab);  // so that the largest do not come first
    switch (shape) {
      case 0:  // a few likely, a long tail
        logits.push_back(static_cast<float>(-1.1 * std::log(at + 1)));
        break;
      case 1:  // five levels of eight equal ones
        logits.push_back(static_cast<float>(-0.3 * std::floor(at / 8)));
        break;
      default:  // every third denied
        logits.push_back(i % 3 == 0 ? -kInfinity : static_cast<float>(-0.1 * at));
    }
  }
  return logits;
}

std::vector<SampleRow> settings_of(int shape) {
  const std::vector<float> logits = logits_of_shape(shape);
  return {{.logits = logits, .temperature = 1.3f},
          {.logits = logits, .temperature = 1.0f, .top_k = 4},
          {.logits = logits, .temperature = 1.0f, .top_p = 0.7f},
          {.logits = logits, .temperature = 1.5f, .min_p = 0.2f},
          {.logits = logits, .temperature = 1.2f, .min_p = 0.05f, .top_k = 12, .top_p = 0.6f}};
}

std::vector<double> expected_of(const SampleRow& row, const std::vector<bool>& kept) {
  std::vector<double> p;
  double total = 0;
  for (size_t i = 0; i < row.logits.size(); ++i) {
    p.push_back(kept[i] ? std::exp(static_cast<double>(row.logits[i]) / row.temperature) : 0);
    total += p.back();
  }
  for (double& v : p) v /= total;
  return p;
}

// Whether the draws fit, at the 99.99 % quantile of chi-square (Wilson and Hilferty's approximation). Tokens of fewer
// than five expected draws are one cell.
bool fits(const std::vector<int64_t>& seen, const std::vector<double>& expected) {
  int64_t draws = 0;
  for (const int64_t n : seen) draws += n;
  double statistic = 0, rest_expected = 0;
  int64_t rest_seen = 0;
  int cells = 0;
  const auto add = [&](double want, int64_t got) {
    statistic += (static_cast<double>(got) - want) * (static_cast<double>(got) - want) / want;
    ++cells;
  };
  for (size_t i = 0; i < seen.size(); ++i) {
    const double want = expected[i] * static_cast<double>(draws);
    if (want == 0 && seen[i] > 0) return false;  // ruled out, and drawn
    if (want >= 5)
      add(want, seen[i]);
    else
      rest_expected += want, rest_seen += seen[i];
  }
  if (rest_expected >= 1) add(rest_expected, rest_seen);
  const double df = std::max(cells - 1, 1), spread = 2 / (9 * df);
  return statistic < df * std::pow(1 - spread + 3.72 * std::sqrt(spread), 3);
}

std::vector<int64_t> seen_in(const std::vector<int32_t>& tokens) {
  std::vector<int64_t> seen(kVocab, 0);
  for (const int32_t token : tokens) ++seen.at(static_cast<size_t>(token));
  return seen;
}

// `count` draws of the kernel, some thousands a launch.
std::vector<int64_t> kernel_draws(const SampleRow& row, size_t count) {
  std::vector<int64_t> seen(kVocab, 0);
  for (size_t done = 0; done < count; done += 4096) {
    const std::vector<int64_t> some = seen_in(draws(row, std::min<size_t>(4096, count - done), 1 + done));
    for (size_t i = 0; i < kVocab; ++i) seen[i] += some[i];
  }
  return seen;
}

std::vector<int64_t> twin_draws(SampleRow row, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    row.seed = 7 + i;
    tokens.push_back(host_choice(row).token);
  }
  return seen_in(tokens);
}

// One token more than asked for; top-p of all, and top-k of what that leaves.
std::vector<bool> kept_with_one_more(SampleRow row) {
  ++row.top_k;
  return kept_tokens(row);
}
std::vector<bool> kept_in_another_order(const SampleRow& row) {
  SampleRow first = row;
  first.top_k = 0;
  std::vector<bool> kept = kept_tokens(first);
  first.top_k = row.top_k, first.top_p = 1.0f;
  const std::vector<bool> then = kept_tokens(first);
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = kept[i] && then[i];
  return kept;
}

TEST(SampleDistributionSweep, IsThatOfTheSettingsForEveryShapeOfLogits) {
  const size_t count = machine().device.driver().is_cpu() ? 300 : (size_t{1} << 20) / 4;  // of each setting
  for (int shape = 0; shape < 3; ++shape)
    for (const SampleRow& row : settings_of(shape)) {
      SCOPED_TRACE("shape " + std::to_string(shape) + ", top_k " + std::to_string(row.top_k) + ", top_p " +
                   std::to_string(row.top_p) + ", min_p " + std::to_string(row.min_p));
      EXPECT_TRUE(fits(kernel_draws(row, count), expected_of(row, kept_tokens(row))));
    }
}

TEST(SampleDistributionSweep, OfTheTwinOnTheHostIsThatOfTheSettings) {
  for (int shape = 0; shape < 3; ++shape)
    for (const SampleRow& row : settings_of(shape))
      EXPECT_TRUE(fits(twin_draws(row, 200000), expected_of(row, kept_tokens(row)))) << "shape " << shape;
}

TEST(SampleDistributionSweep, DoesNotFitOneTokenMoreNorAnotherOrder) {
  const size_t count = machine().device.driver().is_cpu() ? 300 : size_t{1} << 18;
  const SampleRow of_k{.logits = logits_of_shape(0), .top_k = 4};
  EXPECT_TRUE(fits(kernel_draws(of_k, count), expected_of(of_k, kept_tokens(of_k))));
  EXPECT_FALSE(fits(kernel_draws(of_k, count), expected_of(of_k, kept_with_one_more(of_k))));
  // top-p's share is of what top-k leaves: with the shares of all, one token more is kept.
  const SampleRow both{.logits = logits_of_shape(0), .top_k = 6, .top_p = 0.8f};
  ASSERT_NE(kept_tokens(both), kept_in_another_order(both));
  EXPECT_TRUE(fits(kernel_draws(both, count), expected_of(both, kept_tokens(both))));
  EXPECT_FALSE(fits(kernel_draws(both, count), expected_of(both, kept_in_another_order(both))));
}

TEST(SampleDistributionSweep, TakesAnInfiniteLogitAlways) {
  SampleRow row{.logits = logits_of_shape(2), .top_k = 4, .top_p = 0.9f};
  row.logits[7] = kInfinity;
  EXPECT_EQ(seen_in(draws(row, 64))[7], 64);
}

}  // namespace
}  // namespace nodewright::test::sample_distribution_test
