#include "bench/steps/arrivals.h"

#include <algorithm>
#include <random>

namespace nodewright {
namespace {

int64_t draw(const LengthMix& mix, std::mt19937_64& random) {
  std::vector<double> weights;
  for (const LengthRange& range : mix) weights.push_back(range.weight);
  const LengthRange& range = mix[std::discrete_distribution<size_t>(weights.begin(), weights.end())(random)];
  return std::uniform_int_distribution<int64_t>(range.least, range.most)(random);
}

}  // namespace

int64_t longest(const LengthMix& mix) { return std::ranges::max_element(mix, {}, &LengthRange::most)->most; }

std::vector<PlannedRequest> plan_arrivals(int64_t count, double rate, const LengthMix& prompts,
                                          const LengthMix& outputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(rate > 0 ? rate : 1);
  std::vector<PlannedRequest> requests;
  double at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (rate > 0) at += gap(random);
    const int64_t prompt = draw(prompts, random);
    requests.push_back({.arrival_s = at, .prompt = prompt, .output = draw(outputs, random)});
  }
  return requests;
}

std::vector<int32_t> random_prompt(int64_t tokens, int64_t vocab, uint64_t key) {
  std::mt19937_64 random(key);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab - 1));
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) prompt.push_back(token(random));
  return prompt;
}

}  // namespace nodewright
