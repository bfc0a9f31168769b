#include "engine/device/token_score.h"

#include <algorithm>
#include <cmath>

#include "kernels_src/sampling/record_choice.h"

namespace nodewright {
namespace {

// log(sum(exp(logits))) over all ranks, in their order.
double log_sum_of(std::span<const RankScore> ranks) {
  double most = ranks[0].log_sum, sum = 0;
  for (const RankScore& rank : ranks) most = std::max<double>(most, rank.log_sum);
  for (const RankScore& rank : ranks) sum += std::exp(rank.log_sum - most);
  return most + std::log(sum);
}

}  // namespace

TokenScore token_score(std::span<const RankScore> ranks, const ScoredRow& asked) {
  TokenScore score{.token = asked.token, .logprob = 0, .top = {}};
  for (const RankScore& rank : ranks)
    if (rank.outputs.tokens.data[rank.row] < 0) score.token = -1;
  if (score.token < 0) return score;
  const double log_sum = log_sum_of(ranks);
  for (const RankScore& rank : ranks) {
    // One rank alone reports the requested token.
    const auto behind = static_cast<float>(rank.log_sum - log_sum);
    if (rank.has_token) score.logprob = rank.outputs.logprob.data[rank.row] + behind;
    for (int64_t k = int64_t{rank.row} * kMostLogprobs, end = k + asked.logprobs; k < end; ++k)
      if (const int32_t token = rank.outputs.top_tokens.data[k]; token >= 0)
        score.top.emplace_back(rank.first + token, rank.outputs.top_logprobs.data[k] + behind);
  }
  std::ranges::stable_sort(score.top, std::greater(), &std::pair<int32_t, float>::second);
  score.top.resize(std::min(score.top.size(), static_cast<size_t>(std::max(asked.logprobs, 0))));
  return score;
}

}  // namespace nodewright
