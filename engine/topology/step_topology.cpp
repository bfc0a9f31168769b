#include "engine/topology/step_topology.h"

#include <fmt/format.h>

#include "engine/topology/collective_team.h"
#include "engine/topology/packet_team.h"
#include "engine/topology/pipeline_stages.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

void check_places(std::span<const ModelPlace> places, const StepSlotsOptions& options) {
  const auto refuse = [&](const char* detail, const char* advice) {
    throw Error({.doing = "run steps",
                 .object = fmt::format("on {} devices", places.size()),
                 .detail = detail,
                 .advice = advice,
                 .fault = Fault::usage});
  };
  if (places.empty()) refuse("a step needs one at least", "pass a device");
  if (places[0].model->config().stage.is_part()) {
    const auto count = static_cast<int64_t>(places.size());
    for (int64_t i = 0; i < count; ++i) {
      const Stage& stage = places[static_cast<size_t>(i)].model->config().stage;
      if (stage.index != i || stage.count != count)
        refuse("the models are not the stages of one, in their order", "load each with its Stage");
    }
    if (options.adapters.any()) refuse("rows have no adapters in stages", "one device, or a merged adapter");
    return;
  }
  const bool gathers = places[0].collectives != nullptr;
  const auto count = static_cast<int64_t>(gathers ? places[0].collectives->ranks() : places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const auto rank =
        static_cast<int64_t>(gathers && places[i].collectives != nullptr ? places[i].collectives->rank() : i);
    if (places[i].model->config().shard != Shard{rank, count} || (places[i].collectives != nullptr) != gathers)
      refuse("the models are not the parts of one, in the order of their ranks", "load each with its Shard");
  }
  if (count == 1) return;
  if (options.mode != RunMode::explicit_)
    refuse("graphs that exchange are explicit ones", "the mode explicit, or one device");
  if (options.prefill != PrefillForm::graph) refuse("prompts are whole graphs there", "the prefill form graph");
  if (options.eager_rows > 0) refuse("no step is launched node by node there", "buckets for every number of rows");
  if (gathers && options.adapters.any())
    refuse("rows have no adapters where a library's calls exchange", "exchanges by packets, or a merged adapter");
  if (gathers && options.lanes > 1) refuse("steps in two lanes send packets", "exchanges by packets, or one lane");
}

}  // namespace

std::unique_ptr<StepTopology> make_topology(std::span<const ModelPlace> places, const StepSlotsOptions& options) {
  check_places(places, options);
  StepTopology::Devices devices;
  for (const ModelPlace& place : places)
    devices.push_back(std::make_unique<StepDevice>(place, options, devices.empty() ? nullptr : devices.front().get()));
  if (places[0].collectives != nullptr) return std::make_unique<CollectiveTeam>(std::move(devices));
  if (places.size() == 1) return std::make_unique<StepTopology>(std::move(devices));
  if (places[0].model->config().stage.is_part()) return std::make_unique<PipelineStages>(std::move(devices));
  return std::make_unique<PacketTeam>(std::move(devices));
}

std::vector<Plan> StepTopology::plans(const Step& step, std::span<const KvCache* const> caches,
                                      EdgePolicy policy) const {
  std::vector<Plan> plans;
  for (const auto& device : devices_)
    plans.push_back(device->step_plan(*caches[plans.size()], step.bucket, device->state(step.slot, step.rows), policy,
                                      step.adapted));
  return plans;
}

void StepTopology::build(const StepSlotsOptions& options, BuiltBucket& built) {
  std::vector<const KvCache*> caches;
  for (const auto& device : devices_) caches.push_back(&device->cache());
  const int rows = built.bucket == 0 ? options.eager_rows : built.bucket;
  for (const bool adapted : {false, true}) {
    if (adapted && !options.adapters.any()) continue;
    std::vector<Plan> plans = this->plans({built.slot, built.bucket, rows, adapted}, caches, options.policy);
    for (size_t i = 0; i < devices_.size(); ++i) {
      const ContextGuard current(devices_[i]->device());
      devices_[i]->add_run(options, adapted, std::move(plans[i]), built);
    }
  }
}

void StepTopology::launch(const StepLaunch& launch, StepClock* clock) {
  for (const auto& device : devices_) device->submit_changes(launch);
  if (clock != nullptr) clock->begin(first().compute());
  launch_graphs(launch);
  for (const auto& device : devices_) device->launch_slices(launch.slot, launch.scored);
  if (clock != nullptr) clock->end(first().compute());
}

}  // namespace nodewright
