// What the ranks of a team tell of a row, each of its part of the vocabulary, as one distribution.
#include "engine/device/token_score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels_src/sampling/record_choice.h"
#include "tests/support/host_shaping.h"

namespace nodewright {
namespace {

// What a rank tells of a row: `logits` are those of its part.
struct ToldByRank {
  ToldByRank(const std::vector<float>& logits, int32_t token, int32_t wanted)
      : top_tokens(kMostLogprobs, -1), top_logprobs(kMostLogprobs) {
    const std::vector<double> logprobs = test::logprobs_on_host(logits);
    log_sum = static_cast<float>(logits[0] - logprobs[0]);
    tokens = {token}, own = {static_cast<float>(logprobs[static_cast<size_t>(token)])};
    std::vector<int32_t> order;
    for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) order.push_back(i);
    std::ranges::stable_sort(order, std::greater(), [&](int32_t i) { return logits[static_cast<size_t>(i)]; });
    for (size_t k = 0; k < std::min(order.size(), static_cast<size_t>(wanted)); ++k)
      top_tokens[k] = order[k], top_logprobs[k] = static_cast<float>(logprobs[static_cast<size_t>(order[k])]);
  }
  ChoiceOutputs outputs() {
    return {.tokens = {tokens.data(), 1},
            .kept = {},
            .logprob = {own.data(), 1},
            .top_tokens = {top_tokens.data(), top_tokens.size()},
            .top_logprobs = {top_logprobs.data(), top_logprobs.size()}};
  }

  float log_sum = 0;
  std::vector<int32_t> tokens, top_tokens;
  std::vector<float> own, top_logprobs;
};

// Parts of unequal sizes, the smaller of which have fewer tokens than are asked for; the first one's are far below.
const std::vector<std::vector<float>> kParts = {
    {-90, -95.5f, -91}, {3.25f, -2, 7.5f, 7.5f, 0.125f, -8, 1}, {6.75f, 2}, {7.5f, -1.5f, 5}};

std::vector<float> all_logits() {
  std::vector<float> all;
  for (const std::vector<float>& part : kParts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TokenScore score_of(int32_t token, int32_t wanted, int32_t failed_rank = -1) {
  std::vector<ToldByRank> told;
  std::vector<ChoiceOutputs> outputs;
  std::vector<int32_t> firsts;
  int32_t first = 0;
  for (const std::vector<float>& part : kParts) {
    const auto count = static_cast<int32_t>(part.size());
    const bool has = token >= first && token < first + count;
    told.emplace_back(part, has ? token - first : 0, wanted);
    firsts.push_back(first);
    first += count;
  }
  if (failed_rank >= 0) told[static_cast<size_t>(failed_rank)].tokens[0] = -1;
  for (ToldByRank& one : told) outputs.push_back(one.outputs());
  std::vector<RankScore> ranks;
  for (size_t rank = 0; rank < told.size(); ++rank) {
    const auto count = static_cast<int32_t>(kParts[rank].size());
    const bool has = token >= firsts[rank] && token < firsts[rank] + count;
    ranks.push_back({outputs[rank], 0, told[rank].log_sum, firsts[rank], has});
  }
  return token_score(ranks, {.step_row = 0, .token = token, .logprobs = wanted});
}

TEST(TokenScore, OfAllRanksIsThatOfAllLogits) {
  const std::vector<double> expected = test::logprobs_on_host(all_logits());
  std::vector<double> likeliest = expected;
  std::ranges::sort(likeliest, std::greater());
  for (int32_t token = 0; token < static_cast<int32_t>(expected.size()); ++token)
    for (const int32_t wanted : {0, 1, 5, 20}) {
      const TokenScore score = score_of(token, wanted);
      EXPECT_EQ(score.token, token);
      // Three roundings of numbers below 128.
      EXPECT_NEAR(score.logprob, expected[static_cast<size_t>(token)], 3 * 0x1p-18);
      ASSERT_EQ(score.top.size(), std::min(static_cast<size_t>(wanted), expected.size()));
      for (size_t k = 0; k < score.top.size(); ++k) {
        EXPECT_NEAR(score.top[k].second, likeliest[k], 3 * 0x1p-18);
        EXPECT_NEAR(score.top[k].second, expected[static_cast<size_t>(score.top[k].first)], 3 * 0x1p-18);
      }
    }
}

TEST(TokenScore, OfOneRankWithANaNIsNone) {
  for (const int32_t rank : {0, 1, 3}) {
    const TokenScore score = score_of(4, 5, rank);
    EXPECT_EQ(score.token, -1) << rank;
    EXPECT_TRUE(score.top.empty()) << rank;
  }
}

}  // namespace
}  // namespace nodewright
