#include "engine/sampling/token_distribution.h"

#include <algorithm>
#include <cmath>

namespace nodewright {

TokenDistribution::TokenDistribution(std::span<const float> logits)
    : logits_(logits), likeliest_(static_cast<size_t>(std::ranges::max_element(logits) - logits.begin())) {
  const double most = static_cast<double>(logits[likeliest_]);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  log_sum_ = most + std::log(sum);
}

double TokenDistribution::divergence_to(const TokenDistribution& other) const {
  double sum = 0;
  for (size_t token = 0; token < logits_.size(); ++token) {
    const double log_p = log_probability(token), p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - other.log_probability(token));
  }
  return std::max(sum, 0.0);  // it rounds below 0 where both are nearly the same
}

}  // namespace nodewright
