// The distribution of a next token, from its logits, in double precision: for measuring a model, not for choosing.
#pragma once

#include <cstddef>
#include <span>

namespace nodewright {

class TokenDistribution {
 public:
  // `logits` [vocab] must outlive this.
  explicit TokenDistribution(std::span<const float> logits);

  // Nats; -infinity where the logit is.
  double log_probability(size_t token) const { return static_cast<double>(logits_[token]) - log_sum_; }
  size_t likeliest() const { return likeliest_; }  // of equal ones the first
  // KL(this || other) in nats: the sum of p ln(p / q), q of `other` over the same vocabulary.
  double divergence_to(const TokenDistribution& other) const;

 private:
  std::span<const float> logits_;
  size_t likeliest_;
  double log_sum_;  // of exp(logit)
};

}  // namespace nodewright
