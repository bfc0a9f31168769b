// ExplicitGraph::update: the executable graph becomes that of another plan, by cuGraphExecUpdate.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/nodes/graph_handle.h"
#include "graph/nodes/node_parameters.h"

namespace nodewright {
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

// Throws Error with the node that stops the update; the executable graph is then as before.
void ExplicitGraph::update_exec(CUgraph graph, const Plan& next) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = driver_->cuGraphExecUpdate(exec_.get(), graph, &info);
  if (result == CUDA_SUCCESS) return;
  // "?": of a copy that the driver made of a child or of what a library submits.
  const std::string name = info.errorNode == nullptr ? "" : name_of(info.errorNode);
  std::string problem(words_for(info.result));
  for (const PlanNode& node : next.nodes) {
    if (node.name != name) continue;
    const std::string arrays = array_change(*plan_, plan_->nodes[node.id], next, node);
    if (!arrays.empty()) problem += ", " + arrays;
  }
  if (!name.empty())
    problem = (name == "?" ? "a node inside a cloned child or a library's call: " : "node '" + name + "': ") + problem;
  driver_->check(result, "cuGraphExecUpdate", "update graph", next.name, problem + "; the graph is as before",
                 "build a graph of the plan, or replace() this one by it");
}

std::vector<NodeChange> ExplicitGraph::update(Plan plan) {
  check_plan(plan);
  check_options(plan, options_);
  refuse_update_of_switched_nodes();
  const auto next = std::make_shared<const Plan>(std::move(plan));
  std::vector<NodeChange> changes;
  size_t first = 0;
  find_all_changes(first, *next, changes);
  const auto is_kernel = [&](const NodeChange& change) { return next->nodes[change.id].kind == NodeKind::kernel; };
  const bool kernels_alone = built_.size() == 1 && plan_->kept.empty() && next->kept.empty() &&
                             std::all_of(changes.begin(), changes.end(), is_kernel);
  const ContextGuard current(*plan_->device);
  if (kernels_alone)
    update_kernels(next, changes);
  else
    update_by_new_graph(next);
  plan_ = next;
  ++updates_;
  buffers_ = BufferWatch();
  return changes;
}

// In a plan without others inside, the nodes that change take the later parameters where they are, which costs less
// than all nodes made anew. Host calls and events are those of before.
void ExplicitGraph::update_kernels(const std::shared_ptr<const Plan>& next, const std::vector<NodeChange>& changes) {
  BuiltPlan& built = *built_[0];
  const auto set = [&](const PlanNode& node) {
    ParameterPointers pointers(node);
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(node, pointers.get());
    driver_->check(driver_->cuGraphKernelNodeSetParams(built.nodes[node.id], &parameters), "cuGraphKernelNodeSetParams",
                   "update graph", node.name, "the graph is as before");
  };
  size_t done = 0;
  try {
    for (; done < changes.size(); ++done) set(next->nodes[changes[done].id]);
    update_exec(graph_.get(), *next);
  } catch (...) {
    while (done > 0) set(plan_->nodes[changes[--done].id]);
    throw;
  }
  if (built.first_id == 0) built.first_id = built.id;
  built.plan = next;
  built.id = next->id;
  for (auto& state : built.states) state.reset();
}

// The nodes that patches name are those of the graph that was instantiated, which is kept for them.
void ExplicitGraph::update_by_new_graph(const std::shared_ptr<const Plan>& next) {
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
  GraphHandle graph(*driver_);
  try {
    CUgraph made = nullptr;
    driver_->check(driver_->cuGraphCreate(&made, 0), "cuGraphCreate", "update graph", next->name);
    graph = GraphHandle(*driver_, made);
    add_nodes(next, made);
    kept_.retain(*next, made, KeptInside::bodies);
    host_calls_.add(*next);
    update_exec(made, *next);
  } catch (...) {
    kept_.forget_from(before_kept);
    take_back();
    host_calls_.take_back(before_calls);
    throw;
  }
  take_back();
  if (instantiated_.get() == nullptr) std::swap(instantiated_, graph_);
  graph_ = std::move(graph);
  for (size_t i = 0; i < built_.size(); ++i) {
    BuiltPlan &now = *built_[i], &later = *aside[i];
    later.first_id = now.first_id != 0 ? now.first_id : now.id;
    later.exec_nodes = now.exec_nodes.empty() ? std::move(now.nodes) : std::move(now.exec_nodes);
    now = std::move(later);
  }
  host_calls_.forget_before(before_calls);
  kept_.release_first(before_kept);
}

}  // namespace nodewright
