// Another kernel in a node of an instantiated graph: what the driver and the plan's edges allow.
#pragma once

#include <string_view>

#include "graph/node.h"

namespace nodewright {

// The kernel that is to take a node's place.
struct KernelChange {
  const LoadedKernel* kernel = nullptr;
  bool waits_for_inputs = false;  // as PlanNode::waits_for_inputs
};

// Throws Error, naming the node and the rule, unless the kernel takes the node's arguments, may be launched in `shape`
// with the node's attributes, and keeps what the plan's edges rely on: where a programmatic edge leads into the node,
// it waits for its inputs; where nodes after it read settled memory, it lets them start only after its own wait, if the
// kernel of the plan does. A kernel that takes part in an exchange stays.
void check_kernel_change(const Plan& plan, const PlanNode& node, const KernelChange& change, const LaunchShape& shape);

// What the driver forbids and no plan shows (cuGraphExecKernelNodeSetParams in cuda.h): advice where it refuses.
inline constexpr std::string_view kKernelChangeRules =
    "the driver takes another function of the same context, which begins none of these where the node's first one did "
    "not do it: dynamic parallelism, updates of graphs from the device, launches of graphs from the device";

}  // namespace nodewright
