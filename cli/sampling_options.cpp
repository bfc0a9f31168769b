#include "cli/sampling_options.h"

#include <algorithm>

#include "cli/whole_number.h"
#include "engine/sampling_range.h"
#include "runtime/error.h"

namespace nodewright::cli {

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  command.add_option("--temperature", options.temperature, "0: greedy (default: the checkpoint's)");
  command.add_option("--top-k", options.top_k, "keep the k likeliest tokens; 0: all (default: the checkpoint's)")->check(whole_number<uint32_t>);
  command.add_option("--top-p", options.top_p, "keep the likeliest tokens up to this mass; 1: all (default: the checkpoint's)");
  command.add_option("--seed", options.seed, "of the random choice")
      ->check(whole_number<uint64_t>)
      ->capture_default_str();
  command.add_flag("--greedy", options.greedy, "take the likeliest token, whatever the checkpoint says");
}

void check(const SamplingOptions& options) {
  if (options.greedy && options.temperature.value_or(0) > 0)
    throw Error({.doing = "use together",
                 .object = "--greedy and --temperature",
                 .detail = "greedy is a temperature of 0, and another is asked for",
                 .advice = "one of them",
                 .fault = Fault::usage});
  const std::optional<SamplingFault> fault =
      sampling_fault(options.temperature.value_or(0), options.top_k.value_or(0), options.top_p.value_or(1));
  if (!fault) return;
  std::string option = "--" + fault->field;
  std::ranges::replace(option, '_', '-');
  throw Error({.doing = "use", .object = option, .detail = fault->detail, .fault = Fault::usage});
}

Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults) {
  Sampling s{.seed = options.seed};
  const bool asked = options.temperature || options.top_k || options.top_p;
  if (options.greedy || (!asked && !defaults.sample.value_or(false))) return s;
  s.temperature = static_cast<float>(options.temperature.value_or(defaults.temperature.value_or(1.0)));
  s.top_k = static_cast<int32_t>(options.top_k.value_or(defaults.top_k.value_or(0)));
  s.top_p = static_cast<float>(options.top_p.value_or(defaults.top_p.value_or(1.0)));
  return s;
}

}  // namespace nodewright::cli
