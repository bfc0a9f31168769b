// ExplicitGraph::update: the executable graph becomes that of another plan, by cuGraphExecUpdate.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/timing/stopwatch.h"

namespace nodewright {
namespace {

std::string_view words_for(CUgraphExecUpdateResult result) {
  switch (result) {
    case CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED:
      return "the edges or the number of nodes changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED:
      return "the type of the node changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED:
    case CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE:
      return "the node's function may not become this one";
    case CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED:
      return "a parameter changed that may not";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED:
      return "the node has no update";
    case CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED:
      return "an attribute changed that may not";
    default:
      return "no reason given";
  }
}

}  // namespace

// `index`: of the plan in built_, which has the plans inside a plan after it, in the order of their nodes. Bodies of
// conditional nodes are not reached, since such nodes have no update.
void ExplicitGraph::find_all_changes(size_t& index, const Plan& after, std::vector<NodeChange>& changes) const {
  const BuiltPlan& built = *built_[index++];
  std::vector<bool> patched(built.states.size());
  for (size_t id = 0; id < patched.size(); ++id) patched[id] = built.states[id] != nullptr;
  find_changes(*built.plan, after, patched, changes);
  for (const PlanNode& node : after.nodes)
    for (const auto& body : node.bodies) find_all_changes(index, *body, changes);
}

// A launch after an update left such a node out in three of some thousand random plans, whatever cuGraphNodeSetEnabled
// had answered before it or after it (H100, driver 580.159.04; bench/results/2026-11-28-h100-graph-scale.txt).
void ExplicitGraph::refuse_update_of_switched_nodes() const {
  for (const auto& built : built_)
    for (size_t id = 0; id < built->states.size(); ++id)
      if (built->states[id] != nullptr && built->states[id]->was_off && built->plan->nodes[id].kind != NodeKind::memset)
        throw Error({.doing = "update graph",
                     .object = plan_->name,
                     .detail = fmt::format("node '{}' was switched off since the graph was built or last updated, and "
                                           "the driver may leave it off after an update",
                                           built->plan->nodes[id].name),
                     .advice = "build a graph of the plan, or replace() this one by it"});
}

// The nodes that patches name are those of the graph that was instantiated, which is kept for them.
std::vector<NodeChange> ExplicitGraph::update(Plan plan) {
  check_plan(plan);
  check_options(plan, options_);
  refuse_update_of_switched_nodes();
  const auto next = std::make_shared<const Plan>(std::move(plan));
  std::vector<NodeChange> changes;
  size_t first = 0;
  find_all_changes(first, *next, changes);

  const ContextGuard current(*plan_->device);
  const HostCalls::Mark before_calls = host_calls_.mark();
  const size_t before_kept = kept_.count();
  BuiltPlans aside;  // while the nodes are added those of the graph as it is, then those added
  std::swap(aside, built_);
  const Stats stats = stats_;
  const auto take_back = [&] {
    library_stream_.reset();
    std::swap(aside, built_);
    stats_ = stats;
  };
  Stopwatch watch;
  GraphHandle graph(*driver_);
  CUgraphExecUpdateResultInfo info{};
  CUresult result = CUDA_SUCCESS;
  std::string problem;
  double add_ms = 0, update_ms = 0;
  try {
    CUgraph made = nullptr;
    driver_->check(driver_->cuGraphCreate(&made, 0), "cuGraphCreate", "update graph", next->name);
    graph = GraphHandle(*driver_, made);
    add_nodes(next, made);
    kept_.retain(*next, made, KeptInside::bodies);
    host_calls_.add(*next);
    add_ms = watch.lap_ms();
    result = driver_->cuGraphExecUpdate(exec_.get(), made, &info);
    update_ms = watch.lap_ms();
    if (result != CUDA_SUCCESS) {
      problem = words_for(info.result);
      // "?": of a copy that the driver made of a child or of what a library submits.
      const std::string name = info.errorNode == nullptr ? "" : name_of(info.errorNode);
      if (!name.empty())
        problem =
            (name == "?" ? "a node inside a cloned child or a library's call: " : "node '" + name + "': ") + problem;
    }
  } catch (...) {
    kept_.forget_from(before_kept);
    take_back();
    host_calls_.take_back(before_calls);
    throw;
  }
  take_back();
  if (result != CUDA_SUCCESS) {
    kept_.forget_from(before_kept);
    host_calls_.take_back(before_calls);
    driver_->check(result, "cuGraphExecUpdate", "update graph", next->name, problem + "; the graph is as before",
                   "build a graph of the plan, or replace() this one by it");
  }

  plan_ = next;
  if (instantiated_.get() == nullptr) std::swap(instantiated_, graph_);
  graph_ = std::move(graph);
  ++updates_;
  buffers_ = BufferWatch();
  for (size_t i = 0; i < built_.size(); ++i) {
    BuiltPlan &now = *built_[i], &later = *aside[i];
    later.first_id = now.first_id != 0 ? now.first_id : now.id;
    later.exec_nodes = now.exec_nodes.empty() ? std::move(now.nodes) : std::move(now.exec_nodes);
    now = std::move(later);
  }
  stats_.update_add_ms = add_ms;
  stats_.update_ms = update_ms;
  host_calls_.forget_before(before_calls);
  kept_.release_first(before_kept);
  return changes;
}

}  // namespace nodewright
