#include "graph/change/kernel_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/launch_arguments.h"
#include "graph/nodes/launch_rules.h"

namespace nodewright {
namespace {

// Its arguments may differ from the node's in nothing: they are kept.
std::string argument_problem(const PlanNode& node, const LoadedKernel& kernel) {
  if (!node.kernel->parameters.empty() || !kernel.parameters.empty()) return parameter_problem(kernel, node.fields);
  if (kernel.args_bytes == node.arguments.size()) return "";
  return fmt::format("the node's arguments have {} bytes and kernel '{}' takes {}", node.arguments.size(), kernel.name,
                     kernel.args_bytes);
}

// The first node with a programmatic edge into `node`; null if there is none.
const PlanNode* early_predecessor(const Plan& plan, const PlanNode& node) {
  for (const Edge& edge : std::ranges::equal_range(plan.edges, node.id, {}, &Edge::to))
    if (edge.type == EdgeType::programmatic) return &plan.nodes[edge.from];
  return nullptr;
}

// The first node that a path of programmatic edges leads to from `node` and that reads settled memory; null if there is
// none. Others start after the node has completed.
const PlanNode* settled_reader_after(const Plan& plan, const PlanNode& node) {
  std::vector<bool> starts_early(plan.nodes.size());
  starts_early[node.id] = true;
  for (const Edge& edge : plan.edges)  // by `to`, which are later than their `from`
    if (edge.type == EdgeType::programmatic && starts_early[edge.from]) starts_early[edge.to] = true;
  for (const PlanNode& later : plan.nodes)
    if (later.id != node.id && starts_early[later.id] &&
        std::any_of(later.uses.begin(), later.uses.end(), [](const Use& use) { return use.settled; }))
      return &later;
  return nullptr;
}

}  // namespace

void check_kernel_change(const Plan& plan, const PlanNode& node, const KernelChange& change, const LaunchShape& shape) {
  const auto refuse = [&](std::string detail, std::string advice) {
    throw Error({.doing = "change the kernel of node",
                 .object = node.name,
                 .detail = std::move(detail),
                 .advice = std::move(advice)});
  };
  if (change.kernel == nullptr) refuse("it would have no kernel", "make the kernel with KernelCache::kernel");
  const LoadedKernel& kernel = *change.kernel;
  if (node.exchange)
    refuse(fmt::format("it takes part in exchange {}, and the plans of its team were checked with kernel '{}'",
                       *node.exchange, node.kernel->name),
           "build the team's plans anew");
  if (std::string problem = argument_problem(node, kernel); !problem.empty())
    refuse(std::move(problem), "pass a kernel that takes the node's own arguments");
  if (std::string problem = device_problem(kernel, *plan.device); !problem.empty())
    refuse(std::move(problem), "load the kernel on the plan's device");
  if (std::string problem = launch_problem(kernel, shape, node.attributes, plan.device->properties()); !problem.empty())
    refuse(std::move(problem), "change the launch shape; attributes stay those of the node");
  if (std::string problem = shared_problem(kernel, shape); !problem.empty())
    refuse(std::move(problem), std::string(kAllowShared));
  if (const PlanNode* early = change.waits_for_inputs ? nullptr : early_predecessor(plan, node); early != nullptr)
    refuse(fmt::format("the edge from '{}' is programmatic, and kernel '{}' does not wait for its inputs", early->name,
                       kernel.name),
           "pass a kernel that calls wait_for_inputs() on every path, or finish the plan with EdgePolicy::full");
  if (!node.kernel->releases_after_wait || kernel.releases_after_wait) return;
  if (const PlanNode* reader = settled_reader_after(plan, node); reader != nullptr)
    refuse(fmt::format("node '{}' reads settled memory, and kernel '{}' lets it start before its own wait, which '{}' "
                       "does not",
                       reader->name, kernel.name, node.kernel->name),
           "pass a kernel that calls release_behind_wait(), or finish the plan with EdgePolicy::full");
}

}  // namespace nodewright
