#include "engine/topology/pipeline_stages.h"

#include <algorithm>

#include "engine/topology/packet_team.h"
#include "models/plan/stage_plans.h"

namespace nodewright {

PipelineStages::PipelineStages(Devices devices) : StepTopology(std::move(devices)), team_(devices_of(devices_)) {}

std::vector<Plan> PipelineStages::plans(const Step& step, std::span<const KvCache* const> caches,
                                        EdgePolicy policy) const {
  std::vector<StagePart> parts;
  for (const auto& stage : devices_)
    parts.push_back({.device = &stage->device(),
                     .model = &stage->model(),
                     .kernels = &stage->bound(false).whole.at(step.bucket),
                     .cache = caches[parts.size()],
                     .state = stage->state(step.slot, step.rows)});
  return stage_plans(parts, policy);
}

// Whether a row takes the token that the last step has chosen for its sequence.
bool PipelineStages::reads_chosen(const StepLaunch& launch) const {
  const View<int32_t> tokens = first().slot(launch.slot).graphs.at(launch.bucket).state.host_inputs.tokens;
  return std::any_of(tokens.data, tokens.data + launch.live, [](int32_t token) { return token < 0; });
}

void PipelineStages::launch(const StepLaunch& launch, StepClock* clock) {
  const Stream& compute = first().compute();
  if (sampled_slot_ >= 0 && reads_chosen(launch)) compute.wait(last().slot(sampled_slot_).sampled);
  const StepDevice* before = nullptr;
  for (const auto& stage : devices_) {
    stage->submit_changes(launch);
    if (before != nullptr) stage->compute().wait(before->slot(launch.slot).sampled);
    if (before == nullptr && clock != nullptr) clock->begin(compute);
    stage->launch(launch);
    if (stage.get() != &last()) stage->slot(launch.slot).sampled.record(stage->compute());
    before = stage.get();
  }
  last().launch_slices(launch.slot, launch.scored);
  if (clock == nullptr) return;
  // Times of one device alone can be compared.
  last().slot(launch.slot).sampled.record(last().compute());
  compute.wait(last().slot(launch.slot).sampled);
  clock->end(compute);
}

// The rows of later steps, whose tokens the first stage looks up.
void PipelineStages::hand_back_tokens(int slot) {
  const View<int32_t> to = first().slot(slot).last().state.last_token, from = last().slot(slot).last().state.last_token;
  copy_device_async(last().compute(), to.address(), from.address(), from.bytes(), "last_token");
  sampled_slot_ = slot;
}

}  // namespace nodewright
