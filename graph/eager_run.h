// The eager run of a plan: its nodes launched one by one on a stream, in the plan's order. Launches no graph.
#pragma once

#include "graph/node.h"
#include "runtime/stream.h"

namespace nodewright {

// Submits every node and returns. The stream gives the order; a kernel with a programmatic in-edge may start while the
// kernel submitted before it still runs, as programmatic stream serialization allows. Throws Error with the node's
// name.
void run_eager(const Plan& plan, const Stream& stream);

}  // namespace nodewright
