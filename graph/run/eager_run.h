// The eager run of a plan: its nodes launched one by one on a stream, in the plan's order.
#pragma once

#include "graph/node.h"
#include "runtime/stream.h"

namespace nodewright {

// Submits every node to `stream`; returns without waiting. A plan with conditional nodes is the exception: the stream
// is waited for wherever the host must look at a condition to know what comes next, and at the end. Every condition
// begins with its default. A plan with host nodes must live until they have run. Throws Error with what a host node
// threw in an earlier run.
void run_eager(const Plan& plan, const Stream& stream);

}  // namespace nodewright
