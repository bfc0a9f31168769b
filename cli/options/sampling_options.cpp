#include "cli/options/sampling_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "cli/options/whole_number.h"
#include "engine/sampling/sampling_range.h"
#include "engine/sampling/seeds.h"
#include "runtime/error.h"

namespace nodewright::cli {

namespace {

float number(const std::optional<double>& asked, double otherwise) {
  return static_cast<float>(asked.value_or(otherwise));
}

void set_numbers(const SamplingOptions& options, const GenerationDefaults& defaults, ChoiceOptions& choice) {
  choice.repetition_penalty =
      number(options.repetition_penalty, options.greedy ? 1 : defaults.repetition_penalty.value_or(1));
  choice.presence_penalty = number(options.presence_penalty, 0);
  choice.frequency_penalty = number(options.frequency_penalty, 0);
}

}  // namespace

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  command.add_option("--temperature", options.temperature, "0: greedy (default: the checkpoint's)");
  command.add_option("--top-k", options.top_k, "keep the k likeliest tokens; 0: all (default: the checkpoint's)")
      ->check(whole_number<uint32_t>);
  command.add_option("--top-p", options.top_p,
                     "keep the likeliest tokens up to this mass; 1: all (default: the checkpoint's)");
  command.add_option("--min-p", options.min_p,
                     "keep tokens of at least this share of the likeliest one's probability; 0: all (default: the "
                     "checkpoint's)");
  command.add_option(
      "--repetition-penalty", options.repetition_penalty,
      "divides the logits of tokens that prompt and output have had; 1: none (default: the checkpoint's)");
  command.add_option("--presence-penalty", options.presence_penalty,
                     "taken from the logits of tokens that the output has had (default: 0)");
  command.add_option("--frequency-penalty", options.frequency_penalty, "the same, for each time (default: 0)");
  command.add_option("--seed", options.seed, "of the random choice: repeats it (default: another one each time)")
      ->check(whole_number<uint64_t>);
  command.add_flag("--greedy", options.greedy, "take the likeliest token, whatever the checkpoint says");
}

void check(const SamplingOptions& options) {
  if (options.greedy && options.temperature.value_or(0) > 0)
    throw Error({.doing = "use together",
                 .object = "--greedy and --temperature",
                 .detail = "greedy is a temperature of 0, and another is asked for",
                 .advice = "one of them",
                 .fault = Fault::usage});
  ChoiceOptions numbers;
  set_numbers(options, {}, numbers);
  if (std::string why = why_not(numbers, {}, 1); !why.empty())
    throw Error({.doing = "choose tokens", .detail = std::move(why), .fault = Fault::usage});
  const std::optional<SamplingFault> fault = sampling_fault(options.temperature.value_or(0), options.top_k.value_or(0),
                                                            options.top_p.value_or(1), options.min_p.value_or(0));
  if (!fault) return;
  std::string option = "--" + fault->field;
  std::ranges::replace(option, '_', '-');
  throw Error({.doing = "use", .object = option, .detail = fault->detail, .fault = Fault::usage});
}

Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  Sampling s{.seed = options.seed ? *options.seed : random_seed()};
  const bool asked = options.temperature || options.top_k || options.top_p || options.min_p;
  if (options.greedy || (!asked && !defaults.sample.value_or(false))) return s;
  s.temperature = static_cast<float>(options.temperature.value_or(defaults.temperature.value_or(1.0)));
  s.top_k = static_cast<int32_t>(options.top_k.value_or(defaults.top_k.value_or(0)));
  s.top_p = static_cast<float>(options.top_p.value_or(defaults.top_p.value_or(1.0)));
  s.min_p = static_cast<float>(options.min_p.value_or(defaults.min_p.value_or(0.0)));
  return s;
}

ChoiceOptions choice_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  ChoiceOptions choice;
  set_numbers(options, defaults, choice);
  choice.min_tokens = defaults.min_new_tokens.value_or(0);
  for (const int64_t token : defaults.suppress_tokens)
    choice.biases.push_back({static_cast<int32_t>(token), -std::numeric_limits<float>::infinity()});
  for (const std::vector<int64_t>& word : defaults.bad_words_ids)
    choice.bad_sequences.emplace_back(word.begin(), word.end());
  return choice;
}

void tell_ignored(const GenerationDefaults& defaults) {
  if (defaults.ignored.empty()) return;
  fmt::print(stderr, "nodewright: generation_config.json asks for {}, which is ignored\n",
             fmt::join(defaults.ignored, ", "));
}

}  // namespace nodewright::cli
