// The slots of adapters, and the graphs of steps in which rows have some: beside those of steps in which none has.
#include "engine/device/step_slots.h"
#include "graph/exec_budget.h"

namespace nodewright {

void StepSlots::make_adapters(const DecoderModel& model, const StepSlotsOptions& options) {
  memory_.adapters = 0;
  if (!options.adapters.any()) return;
  adapters_ = std::make_unique<AdapterSlots>(device_, model.config(), options.adapters);
  memory_.adapters = adapters_->bytes();
}

Plan StepSlots::adapted_plan(const KvCache& cache, int bucket, const DecodeState& state, EdgePolicy policy) const {
  return decoder_plan(device_, *model_, bound_adapted_.whole.at(bucket), cache, state, DecodePurpose::serve, policy,
                      adapters_.get());
}

void StepSlots::build_adapted(const StepSlotsOptions& options, int bucket, Graph& graph, BuiltBucket& built) {
  const RunMode mode = mode_of_bucket(options, bucket);
  Plan plan = adapted_plan(*cache_, bucket, graph.state, options.policy);
  if (mode != RunMode::eager) built.bytes += estimate_exec(plan).bytes;
  if (options.prefill != PrefillForm::graph)
    graph.adapted_prompt_run = std::make_unique<PromptRun>(plan, options.prefill, compute_);
  graph.adapted_run = std::make_unique<PlanRun>(std::move(plan), mode, compute_);
  if (const ExplicitGraph* exec = graph.adapted_run->explicit_graph()) built.nodes += exec->stats().nodes;
}

}  // namespace nodewright
