#include "cli/options/request/sampling_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cli/options/refusals.h"
#include "cli/options/whole_number.h"
#include "cli/output/say.h"
#include "engine/sampling/sampling_range.h"
#include "runtime/error.h"

namespace nodewright::cli {

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  command.add_option("--temperature", options.temperature, "0: greedy (default: the checkpoint's)");
  command.add_option("--top-k", options.top_k, "keep the k likeliest tokens; 0: all (default: the checkpoint's)")
      ->check(whole_number<uint32_t>);
  command.add_option("--top-p", options.top_p,
                     "keep the likeliest tokens up to this mass; 1: all (default: the checkpoint's)");
  command.add_option("--min-p", options.min_p,
                     "keep tokens of at least this share of the likeliest one's probability; 0: all (default: the "
                     "checkpoint's)");
  command.add_option("--repetition-penalty", options.repetition_penalty,
                     "divides the logits of tokens in the prompt and the output; 1: none (default: the "
                     "checkpoint's)");
  command.add_option("--presence-penalty", options.presence_penalty,
                     "subtracted from the logits of tokens in the output (default: 0)");
  command.add_option("--frequency-penalty", options.frequency_penalty,
                     "the same, once for each occurrence (default: 0)");
  command
      .add_option("--seed", options.seed,
                  "seed of sampling: the same seed repeats the choice (default: another one each time)")
      ->check(whole_number<uint64_t>);
  command.add_flag("--greedy", options.greedy, "take the likeliest token, whatever the checkpoint says");
}

void check(const SamplingOptions& options) {
  if (options.greedy && options.temperature.value_or(0) > 0)
    refuse_pair("--greedy and --temperature", "greedy is a temperature of 0, and another is asked for", "one of them");
  if (std::string why = why_not(penalties_of(options, {}), {}, 1); !why.empty())
    throw Error({.doing = "choose tokens", .detail = std::move(why), .fault = Fault::usage});
  const std::optional<SamplingFault> fault = sampling_fault(options.temperature.value_or(0), options.top_k.value_or(0),
                                                            options.top_p.value_or(1), options.min_p.value_or(0));
  if (!fault) return;
  std::string option = "--" + fault->field;
  std::ranges::replace(option, '_', '-');
  refuse_option(option, fault->detail);
}

void tell_ignored(const GenerationDefaults& defaults) {
  if (defaults.ignored.empty()) return;
  say("nodewright: generation_config.json asks for {}, which is ignored\n", fmt::join(defaults.ignored, ", "));
}

}  // namespace nodewright::cli
