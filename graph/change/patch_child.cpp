// ExplicitGraph::patch_child: a child's plan made anew, and what it may not change.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/graph_exec.h"

namespace nodewright {
namespace {

// What the edges inside and around a child were derived from, node by node. Empty when it is the same.
std::string difference(const PlanNode& was, const PlanNode& is, const Plan& before, const Plan& after) {
  if (was.name != is.name) return fmt::format("node '{}' is now '{}'", was.name, is.name);
  const auto changed = [&](std::string_view what) {
    return fmt::format("the {} of node '{}' changed", what, was.name);
  };
  if (was.kind != is.kind) return changed("kind");
  if (was.kernel != is.kernel) return changed("kernel");
  if (was.event != is.event) return changed("event");
  if (was.semaphore != is.semaphore) return changed("semaphore");
  const auto same_operation = [](const ValueOperation& a, const ValueOperation& b) {
    return a.waits == b.waits && a.bytes == b.bytes && a.address == b.address;
  };
  if (!std::equal(was.values.begin(), was.values.end(), is.values.begin(), is.values.end(), same_operation))
    return changed("list of value operations");
  if (was.library != nullptr && was.library->what != is.library->what) return changed("library call");
  if (was.attributes != is.attributes) return changed("attributes");
  if (was.copy.to_host != is.copy.to_host || was.copy.from_host != is.copy.from_host || was.copy.rows != is.copy.rows ||
      was.copy.slices != is.copy.slices)
    return changed("kind of copy");
  if (was.fill.rows > 1 && was.fill.element_bytes != is.fill.element_bytes) return changed("element of the fill");
  if (was.uses.size() != is.uses.size()) return changed("number of ranges");
  for (size_t i = 0; i < was.uses.size(); ++i) {
    const Use &a = was.uses[i], &b = is.uses[i];
    const uint64_t a_begin = before.buffers[a.buffer].range.address + a.offset;
    const uint64_t b_begin = after.buffers[b.buffer].range.address + b.offset;
    if (a.field != b.field || a_begin != b_begin || a.bytes != b.bytes || a.access != b.access)
      return fmt::format("field '{}' of node '{}' used {} and uses {}", a.field, was.name,
                         describe_range(before, a.buffer, a.offset, a.bytes),
                         describe_range(after, b.buffer, b.offset, b.bytes));
  }
  return "";
}

std::string difference(const Plan& before, const Plan& after) {
  if (before.name != after.name) return fmt::format("the plan's name was '{}' and is '{}'", before.name, after.name);
  if (before.nodes.size() != after.nodes.size())
    return fmt::format("there were {} nodes and are {}", before.nodes.size(), after.nodes.size());
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    if (std::string text = difference(before.nodes[i], after.nodes[i], before, after); !text.empty()) return text;
    for (size_t b = 0; b < before.nodes[i].bodies.size(); ++b)
      if (std::string text = difference(*before.nodes[i].bodies[b], *after.nodes[i].bodies[b]); !text.empty())
        return text;
  }
  const auto same = [](const Edge& a, const Edge& b) { return a.from == b.from && a.to == b.to && a.type == b.type; };
  if (!std::equal(before.edges.begin(), before.edges.end(), after.edges.begin(), after.edges.end(), same))
    return "the edges changed";
  return "";
}

}  // namespace

void ExplicitGraph::patch_child(ChildNode id, Plan plan) {
  const ContextGuard current(*plan_->device);
  BuiltPlan& outer = built_plan_of(id);
  const PlanNode& node = outer.plan->nodes[id.index];
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "patch node",
                 .object = node.name,
                 .detail = std::move(detail),
                 .advice = "build the graph anew, or pass a plan that differs in scalars, shapes and functions only"});
  };
  if (node.kind != NodeKind::child) refuse(fmt::format("it is of kind {}, not a child", to_string(node.kind)));
  const auto found =
      std::find_if(built_.begin(), built_.end(), [&](const auto& built) { return built->is_of(node.bodies[0]->id); });
  BuiltPlan& inner = **found;
  check_plan(plan);
  const auto kept = std::make_shared<const Plan>(std::move(plan));
  if (std::string text = difference(*inner.plan, *kept); !text.empty()) refuse(std::move(text));
  if (std::any_of(kept->nodes.begin(), kept->nodes.end(), [](const PlanNode& n) { return !n.bodies.empty(); }))
    refuse("its plan has children of its own");

  BuiltPlans scratch;
  std::swap(scratch, built_);  // what add_nodes records is of no use
  const Stats stats = stats_;
  CUgraph graph = nullptr;
  CUresult result = CUDA_SUCCESS;
  const size_t kept_before = kept_.count();
  try {
    driver_->check(driver_->cuGraphCreate(&graph, 0), "cuGraphCreate", "patch child", node.name);
    const GraphHandle owned(*driver_, graph);
    add_nodes(kept, graph);
    kept_.retain(*kept, graph, KeptInside::bodies);  // the executable graph refers to them, too, from the call on
    library_stream_.reset();
    for (const auto& [id, library] : built_[0]->libraries)
      if (!same_kernels(library, inner.libraries.at(id)))
        refuse(fmt::format("the library call of node '{}' submits other kernels now", kept->nodes[id].name));
    driver_->label(node.name);
    result = driver_->cuGraphExecChildGraphNodeSetParams(exec_.get(), outer.handle(node.id), graph);
    kept_.forget_from(kept_before);
  } catch (...) {
    kept_.forget_from(kept_before);
    library_stream_.reset();
    std::swap(scratch, built_);
    stats_ = stats;
    throw;
  }
  std::swap(scratch, built_);
  stats_ = stats;
  driver_->check(result, "cuGraphExecChildGraphNodeSetParams", "patch node", node.name);
  host_calls_.add(*kept);
  inner.plan = kept;
  for (uint32_t id = 0; id < inner.states.size(); ++id) {
    const std::unique_ptr<BuiltPlan::NodeState> state = std::move(inner.states[id]);
    if (state == nullptr || state->enabled) continue;
    const PlanNode& off = kept->nodes[id];
    result = driver_->cuGraphNodeSetEnabled(exec_.get(), inner.handle(id), 1);
    if (result == CUDA_SUCCESS) continue;
    state_of(inner, off, *this).enabled = false;
    driver_->check(result, "cuGraphNodeSetEnabled", "patch node", off.name, "to switch it on again");
  }
}

}  // namespace nodewright
