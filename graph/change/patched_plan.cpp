// plan_as_patched: from the states of a graph's nodes back to a plan.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "graph/graph_exec.h"

namespace nodewright {
namespace {

// Handles of conditions and addresses of allocated memory are the graph's own: the plan's stand there again.
void take_arguments(const BuiltPlan::NodeState& state, const AllocatedMemory& memory, PlanNode& node) {
  const std::vector<std::byte> planned(node.arguments.begin(), node.arguments.end());
  node.arguments.assign(state.arguments.begin(), state.arguments.end());
  for (const FieldInfo& field : node.fields) {
    std::byte* value = node.arguments.data() + field.offset;
    if (field.role == Role::condition) {
      std::memcpy(value, planned.data() + field.offset, field.bytes);
    } else if (is_memory(field.role)) {
      uint64_t address = 0;
      std::memcpy(&address, value, sizeof address);
      address = memory.planned(address);
      std::memcpy(value, &address, sizeof address);
    }
  }
}

void take_state(const BuiltPlan::NodeState& state, const AllocatedMemory& memory, PlanNode& node) {
  node.kernel = state.kernel;
  node.waits_for_inputs = state.waits_for_inputs;
  node.shape = state.shape;
  node.copy = state.copy;
  node.copy.to = memory.planned(state.copy.to);
  node.copy.from = memory.planned(state.copy.from);
  node.fill = state.fill;
  node.fill.to = memory.planned(state.fill.to);
  node.values = state.values;
  node.host = state.host;
  node.event = state.event;
  take_arguments(state, memory, node);
}

// A plan of the graph or of a node in it. patch_child puts another one in its place, which `built` knows.
Plan patched(const ExplicitGraph& exec, uint64_t plan_id) {
  const auto found = std::find_if(exec.built_plans().begin(), exec.built_plans().end(),
                                  [&](const auto& built) { return built->is_of(plan_id); });
  const BuiltPlan& built = **found;
  Plan plan = *built.plan;
  for (PlanNode& node : plan.nodes) {
    for (auto& body : node.bodies) body = std::make_shared<const Plan>(patched(exec, body->id));
    const BuiltPlan::NodeState* state = built.states[node.id].get();
    if (state == nullptr) continue;
    if (!state->enabled)
      throw Error({.doing = "take the patched plan of graph",
                   .object = exec.plan().name,
                   .detail = "node '" + node.name + "' is switched off",
                   .advice = "use the plan as it was built, or switch the node on"});
    take_state(*state, exec.memory(), node);
  }
  return plan;
}

}  // namespace

Plan plan_as_patched(const ExplicitGraph& exec) { return patched(exec, exec.built_plans()[0]->id); }

}  // namespace nodewright
