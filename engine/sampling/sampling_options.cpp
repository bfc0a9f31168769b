#include "engine/sampling/sampling_options.h"

#include <limits>

#include "engine/sampling/seeds.h"

namespace nodewright {
namespace {

float number(const std::optional<double>& asked, double otherwise) {
  return static_cast<float>(asked.value_or(otherwise));
}

}  // namespace

ChoiceOptions penalties_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  ChoiceOptions choice;
  choice.repetition_penalty =
      number(options.repetition_penalty, options.greedy ? 1 : defaults.repetition_penalty.value_or(1));
  choice.presence_penalty = number(options.presence_penalty, 0);
  choice.frequency_penalty = number(options.frequency_penalty, 0);
  return choice;
}

Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  Sampling s{.seed = options.seed ? *options.seed : random_seed()};
  const bool asked = options.temperature || options.top_k || options.top_p || options.min_p;
  if (options.greedy || (!asked && !defaults.sample.value_or(false))) return s;
  s.temperature = static_cast<float>(options.temperature.value_or(defaults.temperature.value_or(1.0)));
  s.top_k = static_cast<int32_t>(options.top_k.value_or(defaults.top_k.value_or(0)));
  s.top_p = static_cast<float>(options.top_p.value_or(defaults.top_p.value_or(1.0)));
  s.min_p = static_cast<float>(options.min_p.value_or(defaults.min_p.value_or(0.0)));
  if (s.top_p == 0) s.top_p = 1, s.top_k = 1;  // the likeliest token alone, as transformers reads it
  return s;
}

ChoiceOptions choice_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  ChoiceOptions choice = penalties_of(options, defaults);
  choice.min_tokens = defaults.min_new_tokens.value_or(0);
  for (const int64_t token : defaults.suppress_tokens)
    choice.biases.push_back({static_cast<int32_t>(token), -std::numeric_limits<float>::infinity()});
  for (const std::vector<int64_t>& word : defaults.bad_words_ids)
    choice.bad_sequences.push_back(std::vector<int32_t>(word.begin(), word.end()));
  return choice;
}

}  // namespace nodewright
