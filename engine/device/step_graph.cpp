#include "engine/device/step_graph.h"

namespace nodewright {

StepRun& StepGraph::step(bool prompt, bool adapted) const {
  const auto own = runs.find(adapted ? GraphKind::adapted_prompt : GraphKind::prompt);
  return prompt && own != runs.end() ? *own->second : run(adapted ? GraphKind::adapted : GraphKind::plain);
}

const Plan* PlanStepRun::plan() {
  const ExplicitGraph* graph = run_.explicit_graph();
  return graph == nullptr ? nullptr : &graph->plan();
}

size_t PlanStepRun::nodes() {
  const ExplicitGraph* graph = run_.explicit_graph();
  return graph == nullptr ? 0 : graph->stats().nodes;
}

}  // namespace nodewright
