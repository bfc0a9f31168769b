#include "bench/graph/model_graph_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "bench/alternation.h"
#include "bench/measured_work.h"
#include "graph/run/eager_run.h"
#include "graph/run/graph_reserve.h"
#include "models/plan/decoder_graph.h"
#include "runtime/event.h"

namespace nodewright {
namespace {

constexpr int kModelWarmUp = 2;
constexpr int kModelLaunches = 10;  // timed one by one within a repetition; their median counts

// The memory of a decode plan whose rows stand at the end of a context of zeros.
struct StepMemory {
  StepMemory(Device& device, const ModelConfig& config, int64_t rows, int64_t context)
      : cache(device, config, rows * pages_for(context)),
        slot(device, config, {.rows = rows, .max_context = context, .sequences = rows}),
        state(slot.state(rows)) {
    fill_device(device, cache.buffer().address(), std::byte{0}, cache.bytes(), cache.buffer().name());
    const StepInputs& in = state.host_inputs;
    in.n_live.data[0] = in.n_sampled.data[0] = static_cast<int32_t>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      in.tokens.data[row] = 1;
      in.positions.data[row] = static_cast<int32_t>(context - 1);
      in.sequences.data[row] = static_cast<int32_t>(row);
      in.top_p.data[row] = 1.0f;
      std::vector<int32_t> pages(static_cast<size_t>(pages_for(context)));
      std::iota(pages.begin(), pages.end(), static_cast<int32_t>(row * pages_for(context)));
      slot.write_table(static_cast<int32_t>(row), 0, pages);
    }
  }
  KvCache cache;
  DecodeSlot slot;
  DecodeState state;
};

struct ModeSamples {
  std::vector<double> record, instantiate, upload, launch, step;
  ModelModeLine line(RunMode mode) const {
    return {.mode = mode,
            .record_us = spread_of(record),
            .instantiate_us = spread_of(instantiate),
            .upload_us = spread_of(upload),
            .launch_us = spread_of(launch),
            .step_us = spread_of(step)};
  }
};

}  // namespace

ModelGraphResult bench_model_graph(Device& device, const Stream& stream, KernelCache& kernels,
                                   const DecoderModel& model, const ModelGraphOptions& options) {
  const int64_t context = std::min(options.context, model.config().max_position);
  const StepMemory memory(device, model.config(), options.rows, context);
  kernels.prepare(decoder_kernel_requests(kernels, model.config(), options.rows));
  const DecoderKernels chosen = decoder_kernels(kernels, model.config(), options.rows);
  const auto make_plan = [&] {
    return decoder_plan(device, model, chosen, memory.cache, memory.state, DecodePurpose::step,
                        EdgePolicy::programmatic);
  };
  const Plan plan = make_plan();
  ExplicitGraph exec(plan);
  CapturedGraph captured(plan, stream);
  exec.upload(stream);

  std::vector<double> plan_us;
  ModeSamples explicit_samples, captured_samples, eager_samples;
  const Event start(device, "bench.start", true), end(device, "bench.end", true);
  const auto time_launches = [&](ModeSamples& samples, const std::function<void()>& launch, bool counted) {
    std::vector<double> cpu;
    for (int i = 0; i < kModelLaunches; ++i) {
      stream.synchronize();
      cpu.push_back(us_of(launch));
    }
    stream.synchronize();
    start.record(stream);
    for (int i = 0; i < options.steps_a_sample; ++i) launch();
    end.record(stream);
    end.synchronize();
    if (!counted) return;
    samples.launch.push_back(spread_of(cpu).median);
    samples.step.push_back(static_cast<double>(end.ms_since(start)) * 1e3 / options.steps_a_sample);
  };
  const std::vector<std::function<void(bool)>> variants = {
      [&](bool counted) {
        std::optional<Plan> built;
        const double us = us_of([&] { built = make_plan(); });
        std::optional<ExplicitGraph> graph;
        const double constructed_us = us_of([&] { graph.emplace(std::move(*built)); });
        const double instantiate_us = graph->stats().instantiate_ms * 1e3;
        const double upload_us = us_of([&] {
          graph->upload(stream);
          stream.synchronize();
        });
        if (!counted) return;
        plan_us.push_back(us);
        explicit_samples.record.push_back(constructed_us - instantiate_us);
        explicit_samples.instantiate.push_back(instantiate_us);
        explicit_samples.upload.push_back(upload_us);
      },
      [&](bool counted) {
        CapturedGraph graph(plan, stream);
        stream.synchronize();
        if (!counted) return;
        captured_samples.record.push_back(graph.stats().capture_ms * 1e3);
        captured_samples.instantiate.push_back(graph.stats().instantiate_ms * 1e3);
        captured_samples.upload.push_back(graph.stats().upload_ms * 1e3);
      },
      [&](bool counted) {
        time_launches(
            explicit_samples, [&] { exec.launch(stream); }, counted);
      },
      [&](bool counted) {
        time_launches(
            captured_samples, [&] { captured.launch(stream); }, counted);
      },
      [&](bool counted) {
        time_launches(
            eager_samples, [&] { run_eager(plan, stream); }, counted);
      }};
  SteadyCore core;
  alternate(variants, kModelWarmUp, options.repetitions, core);

  ModelGraphResult result;
  result.nodes = plan.nodes.size();
  result.edges = plan.edges.size();
  result.programmatic_edges = exec.stats().programmatic_edges;
  result.plan_us = spread_of(plan_us);
  result.modes = {explicit_samples.line(RunMode::explicit_), captured_samples.line(RunMode::captured),
                  eager_samples.line(RunMode::eager)};
  return result;
}

BucketBench::BucketBench(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                         std::vector<int64_t> buckets, int slots, int64_t context)
    : device_(device),
      stream_(stream),
      kernels_(kernels),
      model_(model),
      buckets_(std::move(buckets)),
      context_(std::min(context, model.config().max_position)),
      cache_(device, model.config(), pages_for(context_)) {
  const int64_t most_rows = *std::max_element(buckets_.begin(), buckets_.end());
  const DecodeLimits limits{.rows = most_rows, .max_context = context_, .sequences = most_rows, .products_from = 0};
  for (int slot = 0; slot < slots; ++slot)
    memory_.push_back(std::make_unique<DecodeSlot>(device, model.config(), limits));
}

Plan BucketBench::plan_of(int64_t rows, int slot) const {
  return decoder_plan(device_, model_, chosen_.at(rows), cache_, memory_[static_cast<size_t>(slot)]->state(rows),
                      DecodePurpose::step, EdgePolicy::programmatic);
}

BucketLine BucketBench::build_one(int64_t rows, int slot, KeptGraphs& graphs) const {
  BucketLine line{.rows = rows, .slot = slot};
  const uint64_t free_before = device_.free_bytes();
  std::optional<Plan> plan;
  line.plan_us = us_of([&] { plan = plan_of(rows, slot); });
  line.nodes = plan->nodes.size();
  line.estimate = estimate_exec(*plan);
  line.add_us = us_of([&] { graphs.push_back(std::make_unique<ExplicitGraph>(std::move(*plan))); });
  line.instantiate_us = graphs.back()->stats().instantiate_ms * 1e3;
  line.add_us -= line.instantiate_us;
  line.upload_us = us_of([&] {
    graphs.back()->upload(stream_);
    stream_.synchronize();
  });
  const uint64_t free_after = device_.free_bytes();
  line.free_fell_bytes = free_before > free_after ? free_before - free_after : 0;
  return line;
}

std::vector<BucketLine> BucketBench::build_set(KeptGraphs& graphs) const {
  SteadyCore core;
  std::vector<BucketLine> lines;
  for (int slot = 0; slot < static_cast<int>(memory_.size()); ++slot)
    for (const int64_t rows : buckets_) {
      core.settle();
      lines.push_back(build_one(rows, slot, graphs));
    }
  return lines;
}

BucketsResult BucketBench::build(bool reserve, int sets) {
  const ModelConfig& config = model_.config();
  BucketsResult result;
  std::vector<KernelRequest> requests;
  std::set<std::string> distinct;
  for (const int64_t rows : buckets_)
    for (KernelRequest& request : decoder_kernel_requests(kernels_, config, rows))
      if (distinct.insert(to_string(request)).second) requests.push_back(std::move(request));
  const uint64_t compiled_before = kernels_.stats().compiled;
  result.kernels_ms = us_of([&] { kernels_.prepare(requests); }) * 1e-3;
  result.kernels = requests.size();
  result.kernels_compiled = kernels_.stats().compiled - compiled_before;
  for (const int64_t rows : buckets_) chosen_.emplace(rows, decoder_kernels(kernels_, config, rows));

  std::vector<std::vector<BucketLine>> built;  // by set
  for (int set = 0; set < sets; ++set) {
    KeptGraphs graphs;
    if (set == 0) {
      result.first = build_one(buckets_.front(), 0, graphs);
      if (reserve) {
        const Plan like = plan_of(buckets_.back(), 0);
        const SteadyCore core;
        result.reserve_ms = us_of([&] { reserve_graphs(like, buckets_.size() * memory_.size()); }) * 1e-3;
      }
    }
    if (set > 0) plan_of(buckets_.back(), 0);  // so that malloc sorts what the set before has freed, unmeasured
    const uint64_t free_before = device_.free_bytes();
    built.push_back(build_set(graphs));
    const uint64_t free_after = device_.free_bytes();
    if (set > 0) continue;
    result.free_fell_bytes = free_before > free_after ? free_before - free_after : 0;
    stream_.synchronize();
    result.launch_all_ms = us_of([&] {
                             for (const auto& graph : graphs) graph->launch(stream_);
                             stream_.synchronize();
                           }) *
                           1e-3;
  }

  for (const std::vector<BucketLine>& lines : built) {
    double us = 0;
    for (const BucketLine& line : lines) us += line.total_us();
    result.set_ms.push_back(us * 1e-3);
  }
  for (size_t i = 0; i < built[0].size(); ++i) {
    std::vector<BucketLine> builds;
    for (const std::vector<BucketLine>& lines : built) builds.push_back(lines[i]);
    std::sort(builds.begin(), builds.end(),
              [](const BucketLine& a, const BucketLine& b) { return a.total_us() < b.total_us(); });
    BucketLine line = builds[builds.size() / 2];
    line.longest_us = builds.back().total_us();
    line.free_fell_bytes = built[0][i].free_fell_bytes;  // later sets are given what the first has left
    result.lines.push_back(line);
  }
  return result;
}

void BucketBench::measure_memory(BucketsResult& result, KeptGraphs& kept) const {
  constexpr int kMostCopies = 256;
  for (BucketLine& line : result.lines)
    if (line.slot == 0)
      line.exec_bytes = bytes_per_exec(device_, stream_, plan_of(line.rows, line.slot), kMostCopies, kept);
}

}  // namespace nodewright
