#include "cli/generate/several_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/interruption.h"
#include "cli/options/refusals.h"
#include "engine/byte_size.h"
#include "graph/timing/stopwatch.h"

namespace nodewright::cli {

void check_several_steps(const EngineSettings& engine, const ChoiceOptions& choice) {
  const auto refuse = [](const std::string& option) {
    refuse_pair("--steps-per-launch and " + option,
                "several steps of a launch see neither their tokens' text nor other rows", "one of them");
  };
  if (choice.needs_choices() || choice.ends)
    refuse_pair("--steps-per-launch and the choice of tokens",
                "such a launch knows temperature, min-p, top-k and top-p, and this text asks for more: "
                "penalties, biases, stop strings or a grammar, on the command line or in "
                "generation_config.json",
                "no --steps-per-launch");
  const EngineOptions& options = engine.engine;
  const std::pair<const char*, bool> of_engines[] = {{"--speculate", options.speculate > 0},
                                                     {"--buckets", !options.buckets.empty()},
                                                     {"--memory-limit", !engine.memory_limit.empty()},
                                                     {"--log", !engine.log.empty()},
                                                     {"--step-tokens", engine.step_tokens.has_value()},
                                                     {"--products-from", engine.products_from.has_value()},
                                                     {"--prefill", engine.prefill != "graph"},
                                                     {"--adapter", !engine.adapters.empty()},
                                                     {"--schedule", engine.schedule != "mixed"},
                                                     {"--pages", options.pages > 0},
                                                     {"--step-timeout", options.step_timeout_ms > 0},
                                                     {"--no-prefix-cache", engine.no_prefix_cache},
                                                     {"--no-pipelining", engine.no_pipelining}};
  for (const auto& [option, given] : of_engines)
    if (given) refuse(option);
}

RequestOutcome generate_several(DirectSteps& steps, const RequestSpec& spec, const Sampling& sampling,
                                const std::function<void(int32_t)>& token) {
  const auto prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  const int64_t wanted = std::min(spec.max_tokens, steps.options().slots.max_context - prompt_tokens);
  RequestOutcome outcome{.prompt_tokens = prompt_tokens, .context_full = wanted < spec.max_tokens};
  Stopwatch watch;
  steps.append(0, std::span(spec.prompt).first(spec.prompt.size() - 1));
  // What the device has no room for is found here, at the end of a launch.
  StepRow row{.token = spec.prompt.back(),
              .sampling = sampling,
              .stop_ids = std::span(spec.stop_ids).first(std::min<size_t>(spec.stop_ids.size(), kMostStopIds))};
  for (bool ended = false; !ended && outcome.tokens < wanted && !cli::interrupted();) {
    row.most = std::min(steps.options().slots.steps.most, wanted - outcome.tokens);
    const std::vector<int32_t>& tokens = steps.launch({&row, 1})[0];
    row.token.reset();  // from now on the device feeds itself
    const auto stop = std::ranges::find_first_of(tokens, spec.stop_ids);
    ended = stop != tokens.end();
    if (outcome.tokens == 0) outcome.first_s = 1e-3 * watch.lap_ms();
    outcome.tokens += stop - tokens.begin() + ended;
    for (auto one = tokens.begin(); one != stop; ++one) token(*one);
    if (ended) outcome.reason = EndReason::stop_id;
  }
  if (outcome.reason == EndReason::length && outcome.tokens < wanted) outcome.reason = EndReason::cancelled;
  outcome.rest_s = 1e-3 * watch.lap_ms();
  return outcome;
}

// "2 nodes, 1 edges; inside them 24 nodes, 23 edges".
std::string size_words(const Plan& plan) {
  std::string text = fmt::format("{} nodes, {} edges", plan.nodes.size(), plan.edges.size());
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) text += "; inside " + node.name + " " + size_words(*body);
  return text;
}

std::string several_report(DirectSteps& steps) {
  const BuiltGraphs& built = steps.built();
  const MemoryUse& memory = steps.device().memory();
  return fmt::format(
      "graph     {}, built in {:.2f} ms, {} of device memory\n"
      "memory    {} of state, {} of key/value cache\n",
      size_words(steps.plan()), built.ms,
      byte_size_text(built.free_before - std::min(built.free_before, built.free_after)), byte_size_text(memory.state),
      byte_size_text(memory.pages));
}

}  // namespace nodewright::cli
