#include "bench/graph/node_bench.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/steps/decode_bench.h"
#include "bench/steps/read_bandwidth.h"
#include "graph/timing/node_timer.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright {

NodeBench bench_nodes(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                      const NodeBenchOptions& options) {
  if (device.driver().is_cpu() && device.driver().cpu_options().poison)
    throw Error({.doing = "time the nodes of a step on",
                 .object = device.name(),
                 .detail = "it overwrites pinned memory once a copy has read it, and the step is launched again",
                 .advice = "--device cpu",
                 .fault = Fault::usage});
  const int64_t max_context = options.max_context > 0 ? options.max_context : options.context;
  DirectSteps steps({&device, &kernels, &model}, {.bucket = options.batch,
                                                  .prefill_rows = filling_rows(options.context),
                                                  .slots = {.max_context = max_context,
                                                            .sequences = options.batch,
                                                            .numerics = options.numerics,
                                                            .tuning = options.tuning,
                                                            .mode = RunMode::eager,
                                                            .policy = options.policy}});
  fill_bucket(steps, options.context);

  ReadBandwidth ceiling(device, stream, kernels, usual_read_bytes(device));
  NodeTimer timer(steps.plan(), kernels, stream);
  PlanTimings timings = timer.measure({.samples = options.samples,
                                       .launches_per_sample = options.launches_per_sample,
                                       .before_launch = {},
                                       .read_peak = [&] { return ceiling.sample(); }});
  std::vector<std::vector<BlockSpan>> blocks;
  for (int i = 0; i < options.block_launches; ++i)
    blocks.push_back(block_spans(timer.twin(), timer.stamps_of_one_launch()));
  return {max_context, steps.plan(), std::move(timings), std::move(blocks)};
}

std::string twin_words(const PlanTimings& timings) {
  const double more = (timings.step_us / timings.plain_step_us - 1) * 100;
  return fmt::format("{:.1f}% {}", std::abs(more), more < 0 ? "less" : "longer");
}

}  // namespace nodewright
