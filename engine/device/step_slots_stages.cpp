// Slots of a pipeline: every stage has memory, pages, tables and graphs of its own layers, and a stream of its own. A
// step goes through the streams one after the other, held together by events: so the first stage may begin the next
// step while this one is in the last. The first stage takes what the host says and hands it on; the last one chooses.
#include <algorithm>
#include <utility>

#include "engine/device/step_slots.h"
#include "graph/exec_budget.h"
#include "runtime/context_guard.h"

namespace nodewright {

std::vector<Plan> StepSlots::plans_of_stages(int slot, int bucket, int rows, std::span<const KvCache* const> caches,
                                             EdgePolicy policy) const {
  std::vector<StagePart> parts;
  for_each_rank([&](const StepSlots& stage) {
    parts.push_back({.device = &stage.device_,
                     .model = stage.model_,
                     .kernels = &stage.bound_.whole.at(bucket),
                     .cache = caches[parts.size()],
                     .state = stage.slots_.at(static_cast<size_t>(slot)).memory->state(rows)});
  });
  return stage_plans(parts, policy);
}

void StepSlots::build_stages(const StepSlotsOptions& options, BuiltBucket& built) {
  std::vector<const KvCache*> caches;
  for_each_rank([&](const StepSlots& stage) { caches.push_back(stage.cache_.get()); });
  const int rows = built.bucket == 0 ? options.eager_rows : built.bucket;
  std::vector<Plan> plans = plans_of_stages(built.slot, built.bucket, rows, caches, options.policy);
  size_t index = 0;
  for_each_rank([&](StepSlots& stage) {
    const ContextGuard current(stage.device_);
    Graph& graph = stage.slot_at(built.slot).graphs.at(built.bucket);
    graph.run = stage.new_run(options, std::move(plans[index++]), graph, built);
  });
}

// Whether a row takes the token that the last step has chosen for its sequence.
bool StepSlots::reads_chosen(const Launch& launch) const {
  const View<int32_t> tokens = inputs(launch.slot, launch.bucket).tokens;
  return std::any_of(tokens.data, tokens.data + launch.live, [](int32_t token) { return token < 0; });
}

void StepSlots::launch_stages(const Launch& launch) {
  if (sampled_slot_ >= 0 && reads_chosen(launch)) compute_.wait(last().slot_at(sampled_slot_).sampled);
  StepSlots* before = nullptr;
  for_each_rank([&](StepSlots& stage) {
    stage.submit_changes(launch);
    if (before != nullptr) stage.compute_.wait(before->slot_at(launch.slot).sampled);
    if (before == nullptr && clock_ != nullptr) clock_->begin(compute_);
    stage.launch_graph(launch);
    if (&stage != &last()) stage.slot_at(launch.slot).sampled.record(stage.compute_);
    before = &stage;
  });
  last().launch_slices(launch.slot, launch.scored);
  if (clock_ == nullptr) return;
  // Times of one device alone can be compared.
  last().slot_at(launch.slot).sampled.record(last().compute_);
  compute_.wait(last().slot_at(launch.slot).sampled);
  clock_->end(compute_);
}

// What the last stage has chosen, for the rows of later steps, whose tokens the first stage looks up.
void StepSlots::return_tokens(int slot) {
  const View<int32_t> to = last_graph(slot).state.last_token, from = last().last_graph(slot).state.last_token;
  copy_device_async(last().compute_, to.address(), from.address(), from.bytes(), "last_token");
  sampled_slot_ = slot;
}

}  // namespace nodewright
