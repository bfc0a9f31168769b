// The kernels and graphs of one device.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>

#include "engine/device/step_device.h"
#include "engine/device/step_limits.h"
#include "graph/exec_budget.h"
#include "runtime/context_guard.h"
#include "runtime/host/parallel.h"

namespace nodewright {
namespace {

RunMode mode_of_bucket(const StepSlotsOptions& options, int bucket) {
  return bucket == 0 ? RunMode::eager : options.mode;
}

}  // namespace

void StepDevice::bind_kernels(const StepSlotsOptions& options) {
  std::vector<KernelRequest> requests;
  const DecodeLimits limits = limits_of(options, collectives_);
  const auto add = [&](const StepShape& shape) {
    std::ranges::move(decoder_kernel_requests(kernels_, config(), shape), std::back_inserter(requests));
  };
  std::map<int, std::optional<StepShape>> lanes;
  for (const auto& [bucket, rows] : plans_of(options)) {
    const StepShape shape = shape_of(*model_, options, rows, collectives_);
    const auto& lane = lanes[bucket] = lane_shape_of(*model_, options, bucket);
    for (const StepShape* const each : {&shape, lane ? &*lane : nullptr}) {
      if (each == nullptr) continue;
      add(*each);
      if (limits.adapters.any()) add(with_adapters(*each, limits));
    }
  }
  if (has_choices(options)) {
    std::ranges::move(score_kernel_requests(kernels_, config(), score_limits_of(device_, *model_, options)),
                      std::back_inserter(requests));
    for (const auto& [bucket, rows] : plans_of(options))
      std::ranges::move(choice_kernel_requests(std::min<int64_t>(rows, limits.sampled()), device_.properties()),
                        std::back_inserter(requests));
  }
  requests.push_back(TableUpdates::kernel_request());
  kernels_.prepare(requests);
  bound_ = {};
  bound_adapted_ = {};
  const auto bind = [&](int bucket, const StepShape& shape, BoundKernels Bound::*part) {
    (bound_.*part).emplace(bucket, decoder_kernels(kernels_, config(), shape));
    if (limits.adapters.any())
      (bound_adapted_.*part).emplace(bucket, decoder_kernels(kernels_, config(), with_adapters(shape, limits)));
  };
  for (const auto& [bucket, rows] : plans_of(options)) {
    bind(bucket, shape_of(*model_, options, rows, collectives_), &Bound::whole);
    if (lanes[bucket]) bind(bucket, *lanes[bucket], &Bound::lane);
  }
}

std::set<std::string> StepDevice::untaken() const {
  std::set<std::string> all;
  for (const Bound* const bound : {&bound_, &bound_adapted_})
    for (const BoundKernels* const part : {&bound->whole, &bound->lane})
      for (const auto& [bucket, kernels] : *part) all.insert(kernels.untaken.begin(), kernels.untaken.end());
  return all;
}

Plan StepDevice::step_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy, bool adapted,
                           DecodePurpose purpose) const {
  return decoder_plan(device_, *model_, bound(adapted).whole.at(bucket), cache, state, purpose, policy,
                      adapted ? adapters_.get() : nullptr, collectives_);
}

Plan StepDevice::choice_plan(const DecodeState& state, const ChoiceState& choice, EdgePolicy policy) const {
  return nodewright::choice_plan(device_, config().vocab, choice_kernels(kernels_, choice), state, choice, policy);
}

Plan StepDevice::slice_plan(const Slot& slot, int64_t index, EdgePolicy policy) const {
  const ScoreKernels kernels = score_kernels(kernels_, config(), slots_[0].scores->limits());
  return score_plan(device_, *model_, kernels, slot.scores->slice(index), slots_[0].choices->state(1).counts, index,
                    policy);
}

void StepDevice::add_graphs(const StepSlotsOptions& options) {
  for (const auto& [bucket, rows] : plans_of(options))
    for (Slot& slot : slots_) slot.graphs[bucket].state = slot.memory->state(rows);
}

void StepDevice::add_run(const StepSlotsOptions& options, bool adapted, Plan plan, BuiltBucket& built) {
  const RunMode mode = mode_of_bucket(options, built.bucket);
  auto& runs = slot(built.slot).graphs.at(built.bucket).runs;
  if (mode != RunMode::eager) built.bytes += estimate_exec(plan).bytes;
  if (options.prefill != PrefillForm::graph)
    runs[adapted ? GraphKind::adapted_prompt : GraphKind::prompt] =
        std::make_unique<PromptStepRun>(plan, options.prefill, compute_);
  auto run = std::make_unique<PlanStepRun>(std::move(plan), mode, compute_);
  built.nodes += run->nodes();
  runs[adapted ? GraphKind::adapted : GraphKind::plain] = std::move(run);
}

void StepDevice::build_choices(const StepSlotsOptions& options, size_t threads) {
  const std::map<int, int> plans = plans_of(options);
  std::vector<int> buckets;
  for (const auto& [bucket, rows] : plans | std::views::reverse) buckets.push_back(bucket);
  in_parallel(buckets.size(), threads, [&](size_t job) {
    const ContextGuard current(device_);
    const int bucket = buckets[job];
    for (Slot& slot : slots_) {
      StepGraph& graph = slot.graphs.at(bucket);
      graph.choice = slot.choices->state(plans.at(bucket));
      graph.runs[GraphKind::choice] = std::make_unique<PlanStepRun>(
          choice_plan(graph.state, graph.choice, options.policy), mode_of_bucket(options, bucket), compute_);
    }
  });
}

void StepDevice::build_slices(const StepSlotsOptions& options) {
  for (Slot& slot : slots_)
    for (int64_t index = 0; index < slot.scores->limits().slices(); ++index)
      slot.slices.push_back(
          {slot.scores->slice(index),
           std::make_unique<PlanRun>(slice_plan(slot, index, options.policy), options.mode, compute_)});
}

}  // namespace nodewright
