#include "bench/steps/decode_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "bench/measured_work.h"
#include "bench/steps/read_bandwidth.h"

namespace nodewright {
namespace {

DecodeBenchLine measure(Device& device, KernelCache& kernels, const DecoderModel& model,
                        const DecodeBenchOptions& options, ReadBandwidth& ceiling, int64_t batch, int64_t context,
                        int64_t adapter_rank, int64_t max_context, RunMode mode) {
  DirectSteps direct(
      {&device, &kernels, &model},
      {.bucket = batch,
       .prefill_rows = filling_rows(context),
       .slots = {.max_context = max_context,
                 .sequences = batch,
                 .numerics = options.numerics,
                 .tuning = options.tuning,
                 .mode = mode,
                 .policy = options.policy,
                 .steps = options.steps,
                 .products_from = options.products_from,
                 .adapters = adapter_limits(adapter_rank > 0 ? std::min<int64_t>(batch, 8) : 0, adapter_rank)}});
  // Every launch begins at `context` keys; wall-clock launches move on from there and end before max_context.
  const int64_t steps = options.steps.most;
  const std::vector<StepRow> rows = fill_bucket(direct, context);
  const Stream& stream = direct.device().compute();

  DecodeBenchLine line{.adapter_rank = adapter_rank, .batch = batch, .context = context, .mode = mode};
  Event start(device, "bench.start", true), end(device, "bench.end", true);
  std::vector<double> times, reads, walls;
  for (int i = -2; i < options.samples; ++i) {  // two rounds warm up
    const double read = ceiling.sample();
    start.record(stream);
    for (int launch = 0; launch < options.launches_per_sample; ++launch) direct.run().launch();
    end.record(stream);
    end.synchronize();
    if (i < 0) continue;
    times.push_back(static_cast<double>(end.ms_since(start)) /
                    static_cast<double>(options.launches_per_sample * steps));
    reads.push_back(read);
  }
  const int64_t wall_launches = std::min<int64_t>(options.samples, (max_context - context + 1) / steps - 1);
  for (int64_t i = 0; i < wall_launches; ++i)
    walls.push_back(1e-3 * us_of([&] { direct.launch(rows); }) / static_cast<double>(steps));

  line.step_ms = spread_of(times);
  line.wall_ms = spread_of(walls);
  line.read_bytes_per_s = spread_of(reads);
  line.weight_bytes = model.weights().bytes_of_step(batch);
  line.kv_bytes = kv_bytes_of_step(model.config(), batch, context, steps);
  line.share = static_cast<double>(line.weight_bytes + line.kv_bytes) / (line.step_ms.median * 1e-3) /
               line.read_bytes_per_s.median;
  line.nodes = direct.plan().nodes.size();
  line.build_ms = direct.built().ms;
  return line;
}

}  // namespace

uint64_t kv_bytes_of_step(const ModelConfig& config, int64_t batch, int64_t context, int64_t steps) {
  int64_t keys = 0;  // of one row, in all steps and layers
  for (int64_t step = 0; step < steps; ++step) keys += attended_keys(config, context + step);
  return static_cast<uint64_t>(2 * batch * keys * config.kv_width() * element_bytes(config.cache) / steps);
}

int64_t filling_rows(int64_t context) {
  return context < 128 ? DirectStepsOptions{}.prefill_rows : std::min<int64_t>(context, 512);
}

std::vector<StepRow> fill_bucket(DirectSteps& steps, int64_t context) {
  const DirectStepsOptions& options = steps.options();
  const int64_t adapters = options.slots.adapters.slots;
  std::vector<StepRow> rows;
  for (int32_t i = 0; i < options.bucket; ++i) {
    // Each row has tokens of its own, so that those of a mixture have experts of their own.
    const std::vector<int32_t> tokens = some_tokens(context, steps.device().config().vocab, i * context);
    if (adapters > 0) steps.restart(i, static_cast<int32_t>(i % adapters));
    steps.append(i, std::span(tokens).first(static_cast<size_t>(context - 1)));
    rows.push_back({.sequence = i, .token = tokens.back(), .most = options.slots.steps.most});
  }
  steps.launch(rows);
  for (StepRow& row : rows) row.token.reset();
  return rows;
}

std::vector<DecodeBenchLine> bench_decode(Device& device, const Stream& stream, KernelCache& kernels,
                                          const DecoderModel& model, const DecodeBenchOptions& options,
                                          const std::function<void(const DecodeBenchLine&)>& told) {
  const uint64_t read_bytes = options.read_bytes != 0 ? options.read_bytes : usual_read_bytes(device);
  ReadBandwidth ceiling(device, stream, kernels, read_bytes);
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  const int64_t max_context =
      std::min(model.config().max_position,
               options.max_context > 0 ? options.max_context : longest + options.samples * options.steps.most);
  std::vector<DecodeBenchLine> lines;
  for (int64_t batch : options.batches)
    for (int64_t context : options.contexts)
      for (int64_t rank : options.adapter_ranks)
        for (RunMode mode : options.modes) {
          lines.push_back(measure(device, kernels, model, options, ceiling, batch, context, rank, max_context, mode));
          told(lines.back());
        }
  return lines;
}

}  // namespace nodewright
