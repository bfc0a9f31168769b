// The graphs of slots: what they will take, and how they are built, each bucket by a thread that has time.
#include <algorithm>
#include <mutex>
#include <ranges>

#include "engine/device/step_limits.h"
#include "engine/topology/step_slots.h"
#include "graph/exec_budget.h"
#include "graph/nodes/library_nodes.h"
#include "graph/timing/stopwatch.h"
#include "runtime/context_guard.h"
#include "runtime/host/parallel.h"

namespace nodewright {

// From the plans themselves, over a cache of one page. The pages that there will be are what is left of the memory.
void StepSlots::prepare_graphs(const StepSlotsOptions& options) {
  built_ = {};
  if (options.mode == RunMode::eager) return;
  std::vector<std::unique_ptr<KvCache>> smallest;  // by device
  std::vector<const KvCache*> caches;
  for (const auto& device : topology_->devices()) {
    smallest.push_back(std::make_unique<KvCache>(device->device(), device->config(), 1));
    caches.push_back(smallest.back().get());
    device->memory().graphs = 0;
  }
  LibraryLoader libraries;
  const bool loads = !device().driver().is_cpu();
  const auto estimated = [](const Plan& plan) { return kSlots * estimate_exec(plan).bytes; };
  const auto add = [&](std::span<const Plan> plans) {
    for (size_t i = 0; i < plans.size(); ++i) topology_->devices()[i]->memory().graphs += estimated(plans[i]);
  };
  for (const auto& [bucket, rows] : plans_of(options)) {
    if (bucket == 0) continue;
    const std::vector<Plan> steps = topology_->plans({0, bucket, rows}, caches, options.policy);
    Stopwatch watch;
    for (const Plan& step : steps)
      if (loads) libraries.load(step);
    built_.products_ms += watch.lap_ms();
    add(steps);
    for (const auto& device : topology_->devices())
      if (device->has_choices(options))
        device->memory().graphs += estimated(
            device->choice_plan(device->state(0, rows), device->slot(0).choices->state(rows), options.policy));
    if (options.adapters.any()) add(topology_->plans({0, bucket, rows, true}, caches, options.policy));
  }
  for (const auto& device : topology_->devices()) {
    if (!device->has_choices(options)) continue;
    const StepDevice::Slot& slot = device->slot(0);
    const Plan slice = device->slice_plan(slot, 0, options.policy);
    device->memory().graphs += static_cast<uint64_t>(slot.scores->limits().slices()) * estimated(slice);
    if (loads) libraries.load(slice);
  }
  built_.products = libraries.loaded();
}

// The driver takes calls in turns, but planning and most of adding are ours: 1, 2, 4, 6, 8 and 16 threads took 131,
// 103, 79, 80, 81 and 85 ms for the 102 graphs of Llama-3.2-1B (bench/results/2026-11-24-h200-start.txt).
constexpr size_t kMostBuildingThreads = 6;

// One alone where a stream is captured, and where every call is observed: a trace repeats from run to run.
size_t StepSlots::building_threads(const StepSlotsOptions& options) const {
  if (topology_->is_built_by_one_thread() || options.mode != RunMode::explicit_ ||
      options.prefill != PrefillForm::graph || device().driver().observer() != nullptr)
    return 1;
  return std::min(usable_threads(), kMostBuildingThreads);
}

void StepSlots::build(const StepSlotsOptions& options) {
  std::vector<int> buckets;  // a job each: two slots share the library's kernels
  for (const auto& [bucket, rows] : plans_of(options) | std::views::reverse) buckets.push_back(bucket);
  for (const auto& device : topology_->devices()) device->add_graphs(options);
  built_.graphs.resize(buckets.size() * kSlots);
  built_.threads = building_threads(options);
  built_.free_before = device().free_bytes();
  std::mutex mutex;
  int count = 0;
  Stopwatch watch;
  in_parallel(buckets.size(), built_.threads, [&](size_t job) {
    const ContextGuard current(device());
    for (int slot = 0; slot < kSlots; ++slot) {
      Stopwatch of_graph;
      BuiltBucket& built = built_.graphs[job * kSlots + static_cast<size_t>(slot)];
      built = {.slot = slot, .bucket = buckets[job], .total = static_cast<int>(built_.graphs.size())};
      topology_->build(options, built);
      built.ms = of_graph.lap_ms();
      const std::lock_guard lock(mutex);
      built.built = ++count;
      if (options.built) options.built(built);
    }
  });
  built_.ms = watch.lap_ms();
  if (options.choices) {
    for (const auto& device : topology_->devices()) {
      if (!device->has_choices(options)) continue;
      device->build_choices(options, building_threads(options));
      device->build_slices(options);
    }
    built_.choice_ms = watch.lap_ms();
  }
  built_.free_after = device().free_bytes();
}

}  // namespace nodewright
