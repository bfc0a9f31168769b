// A plan's graph by the driver's own calls and nothing else: what a figure of the library stands beside.
#pragma once

#include "graph/node.h"
#include "graph/nodes/graph_handle.h"

namespace nodewright {

// Nodes and edges of a plan without children, bodies, libraries and memory of its own. Throws Error with the node that
// the driver refused.
GraphHandle graph_by_driver(const Plan& plan);

}  // namespace nodewright
