#include "bench/graph/node_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/steps/decode_bench.h"
#include "bench/steps/prompt_step.h"
#include "bench/steps/read_bandwidth.h"
#include "graph/timing/node_timer.h"

namespace nodewright {

NodeBench bench_nodes(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                      const NodeBenchOptions& options) {
  const int64_t keys = options.prompt > 0 ? options.prompt : options.context;
  const int64_t max_context = std::max(options.max_context, keys);
  const ModelPlace place{&device, &kernels, &model};
  StepSlotsOptions slots{.max_context = max_context,
                         .numerics = options.numerics,
                         .tuning = options.tuning,
                         .mode = RunMode::eager,
                         .policy = options.policy};
  std::optional<PromptStep> prompt;
  std::optional<DirectSteps> steps;
  if (options.prompt > 0) {
    slots.buckets = BucketSet({static_cast<int>(options.prompt)});
    slots.pages = pages_for(options.prompt);
    prompt.emplace(place, slots);
  } else {
    slots.sequences = options.batch;
    steps.emplace(place, DirectStepsOptions{
                             .bucket = options.batch, .prefill_rows = filling_rows(options.context), .slots = slots});
    fill_bucket(*steps, options.context);
  }
  const Plan& plan = prompt ? prompt->plan : steps->plan();

  ReadBandwidth ceiling(device, stream, kernels, usual_read_bytes(device));
  NodeTimer timer(plan, kernels, stream);
  PlanTimings timings = timer.measure({.samples = options.samples,
                                       .launches_per_sample = options.launches_per_sample,
                                       .before_launch = {},
                                       .read_peak = [&] { return ceiling.sample(); }});
  std::vector<std::vector<BlockSpan>> blocks;
  for (int i = 0; i < options.block_launches; ++i)
    blocks.push_back(block_spans(timer.twin(), timer.stamps_of_one_launch()));
  return {max_context, plan, std::move(timings), std::move(blocks)};
}

std::string twin_words(const PlanTimings& timings) {
  const double more = (timings.step_us / timings.plain_step_us - 1) * 100;
  return fmt::format("{:.1f}% {}", std::abs(more), more < 0 ? "less" : "longer");
}

}  // namespace nodewright
