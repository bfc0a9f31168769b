// What one node of an executable graph does from the next launch on: a planned node in its state after patches, given
// to the driver.
#pragma once

#include <string_view>

#include "graph/graph_exec.h"

namespace nodewright {

// The node is a kernel, a copy, a fill, a host, an event or a values node; `handle` is its node in the graph that
// `exec` was made from.
CUresult set_exec_parameters(const Driver& driver, CUgraphExec exec, CUcontext context, CUgraphNode handle,
                             const PlanNode& node, const BuiltPlan::NodeState& state);

// The driver's entry that set_exec_parameters calls for the node.
std::string_view exec_entry_of(const PlanNode& node);

}  // namespace nodewright
