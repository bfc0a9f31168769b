// The graphs of slots: what they will take, and how they are built, each bucket by a thread that has time.
#include <algorithm>
#include <mutex>
#include <ranges>

#include "engine/device/step_limits.h"
#include "engine/device/step_slots.h"
#include "graph/exec_budget.h"
#include "graph/nodes/library_nodes.h"
#include "graph/run/stopwatch.h"
#include "runtime/context_guard.h"
#include "runtime/host/parallel.h"

namespace nodewright {

// From the plans themselves, over a cache of one page. The pages that there will be are what is left of the memory.
void StepSlots::prepare_graphs(const StepSlotsOptions& options) {
  built_ = {};
  if (options.mode == RunMode::eager) return;
  std::vector<std::unique_ptr<KvCache>> smallest;  // by rank
  std::vector<const KvCache*> caches;
  for_each_rank([&](StepSlots& rank) {
    smallest.push_back(std::make_unique<KvCache>(rank.device_, rank.model_->config(), 1));
    caches.push_back(smallest.back().get());
    rank.memory_.graphs = 0;
  });
  LibraryLoader libraries;
  const auto estimated = [](const Plan& plan) { return kSlots * estimate_exec(plan).bytes; };
  for (const auto& [bucket, rows] : plans_of(options)) {
    if (bucket == 0) continue;
    const std::vector<Plan> steps = plans_over(caches, bucket, rows, options.policy);
    Stopwatch watch;
    for (const Plan& step : steps)
      if (!device_.driver().is_cpu()) libraries.load(step);
    built_.products_ms += watch.lap_ms();
    size_t index = 0;
    for_each_rank([&](StepSlots& rank) {
      rank.memory_.graphs += estimated(steps[index++]);
      if (!rank.has_choices(options)) return;
      const ChoiceState choice = rank.slots_[0].choices->state(rows);
      rank.memory_.graphs +=
          estimated(choice_plan(rank.device_, rank.model_->config().vocab, choice_kernels(rank.kernels_, choice),
                                rank.slots_[0].memory->state(rows), choice, options.policy));
    });
    if (!options.adapters.any()) continue;
    if (sends_packets()) {
      const std::vector<Plan> adapted = team_plan(0, bucket, rows, caches, options.policy, true).ranks;
      index = 0;
      for_each_rank([&](StepSlots& rank) { rank.memory_.graphs += estimated(adapted[index++]); });
    } else {
      memory_.graphs += estimated(adapted_plan(*caches[0], bucket, slots_[0].memory->state(rows), options.policy));
    }
  }
  for_each_rank([&](StepSlots& rank) {
    if (!rank.has_choices(options)) return;
    const ScoreSlot& scores = *rank.slots_[0].scores;
    const ScoreKernels scoring = score_kernels(rank.kernels_, rank.model_->config(), scores.limits());
    const Plan slice = score_plan(rank.device_, *rank.model_, scoring, scores.slice(0),
                                  rank.slots_[0].choices->state(1).counts, 0, options.policy);
    rank.memory_.graphs += static_cast<uint64_t>(scores.limits().slices()) * estimated(slice);
    if (!device_.driver().is_cpu()) libraries.load(slice);
  });
  built_.products = libraries.loaded();
}

// By rank, of the first slot.
std::vector<Plan> StepSlots::plans_over(std::span<const KvCache* const> caches, int bucket, int rows,
                                        EdgePolicy policy) const {
  if (sends_packets()) return team_plan(0, bucket, rows, caches, policy, false).ranks;
  if (is_staged()) return plans_of_stages(0, bucket, rows, caches, policy);
  std::vector<Plan> plans;  // one, or where a library's calls exchange one a rank
  for_each_rank([&](const StepSlots& rank) {
    plans.push_back(rank.step_plan(*caches[plans.size()], bucket, rank.slots_[0].memory->state(rows), policy));
  });
  return plans;
}

Plan StepSlots::step_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy) const {
  return decoder_plan(device_, *model_, bound_.whole.at(bucket), cache, state, DecodePurpose::serve, policy, nullptr,
                      collectives_);
}

// The driver takes calls in turns, but planning and most of adding are ours: 1, 2, 4, 6, 8 and 16 threads took 131,
// 103, 79, 80, 81 and 85 ms for the 102 graphs of Llama-3.2-1B (bench/results/2026-11-24-h200-start.txt).
constexpr size_t kMostBuildingThreads = 6;

// One alone where a stream is captured, or what a library is told by one thread, and where every call is observed: a
// trace repeats from run to run.
size_t StepSlots::building_threads(const StepSlotsOptions& options) const {
  if (collectives_ != nullptr || options.mode != RunMode::explicit_ || options.prefill != PrefillForm::graph ||
      device_.driver().observer() != nullptr)
    return 1;
  return std::min(usable_threads(), kMostBuildingThreads);
}

void StepSlots::build(const StepSlotsOptions& options) {
  const std::map<int, int> plans = plans_of(options);
  std::vector<int> buckets;  // a job each: two slots share the library's kernels
  for (const auto& [bucket, rows] : plans | std::views::reverse) buckets.push_back(bucket);
  for_each_rank([&](StepSlots& rank) {
    for (const auto& [bucket, rows] : plans)
      for (Slot& slot : rank.slots_) slot.graphs[bucket].state = slot.memory->state(rows);
  });
  built_.graphs.resize(buckets.size() * slots_.size());
  built_.threads = building_threads(options);
  built_.free_before = device_.free_bytes();
  std::mutex mutex;
  int count = 0;
  Stopwatch watch;
  in_parallel(buckets.size(), built_.threads, [&](size_t job) {
    const ContextGuard current(device_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      Stopwatch of_graph;
      BuiltBucket& built = built_.graphs[job * slots_.size() + i];
      built = {.slot = static_cast<int>(i), .bucket = buckets[job], .total = static_cast<int>(built_.graphs.size())};
      build_step(options, built);
      built.ms = of_graph.lap_ms();
      const std::lock_guard lock(mutex);
      built.built = ++count;
      if (options.built) options.built(built);
    }
  });
  built_.ms = watch.lap_ms();
  if (options.choices) {
    for_each_rank([&](StepSlots& rank) {
      if (!rank.has_choices(options)) return;
      rank.build_choices(options);
      rank.build_slices(*rank.model_, options);
    });
    built_.choice_ms = watch.lap_ms();
  }
  built_.free_after = device_.free_bytes();
}

// The graph of a bucket in a slot, of several devices those of all.
void StepSlots::build_step(const StepSlotsOptions& options, BuiltBucket& built) {
  if (sends_packets()) return build_team_step(options, built);
  if (is_staged()) return build_stages(options, built);
  Graph& graph = slot_at(built.slot).graphs.at(built.bucket);
  for_each_rank([&](StepSlots& rank) {
    Graph& own = rank.slot_at(built.slot).graphs.at(built.bucket);
    own.run = rank.new_run(options, rank.step_plan(*rank.cache_, built.bucket, own.state, options.policy), own, built);
  });
  if (options.adapters.any()) build_adapted(options, built.bucket, graph, built);
}

// Counts what it takes in `built`.
std::unique_ptr<PlanRun> StepSlots::new_run(const StepSlotsOptions& options, Plan plan, Graph& graph,
                                            BuiltBucket& built) {
  const RunMode mode = mode_of_bucket(options, built.bucket);
  if (mode != RunMode::eager) built.bytes += estimate_exec(plan).bytes;
  if (options.prefill != PrefillForm::graph)
    graph.prompt_run = std::make_unique<PromptRun>(plan, options.prefill, compute_);
  auto run = std::make_unique<PlanRun>(std::move(plan), mode, compute_);
  if (const ExplicitGraph* exec = run->explicit_graph()) built.nodes += exec->stats().nodes;
  return run;
}

void StepSlots::build_choices(const StepSlotsOptions& options) {
  const std::map<int, int> plans = plans_of(options);
  std::vector<int> buckets;
  for (const auto& [bucket, rows] : plans | std::views::reverse) buckets.push_back(bucket);
  in_parallel(buckets.size(), building_threads(options), [&](size_t job) {
    const ContextGuard current(device_);
    const int bucket = buckets[job];
    for (Slot& slot : slots_) {
      Graph& graph = slot.graphs.at(bucket);
      graph.choice = slot.choices->state(plans.at(bucket));
      graph.choice_run =
          std::make_unique<PlanRun>(choice_plan(device_, model_->config().vocab, choice_kernels(kernels_, graph.choice),
                                                graph.state, graph.choice, options.policy),
                                    mode_of_bucket(options, bucket), compute_);
    }
  });
}

}  // namespace nodewright
