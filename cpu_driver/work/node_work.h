// From the parameters of cuGraphAddNode to a node's work.
#pragma once

#include "cpu_driver/work/work.h"

namespace nodewright::cpu {

// For a node of `graph`. Context members must be null or the primary context. A child graph is cloned already unless it
// is to be moved; the bodies of a conditional node are made, and stand in params.conditional.phGraph_out. The addresses
// of an allocation are reserved, and stand in params.alloc.dptr.
CUresult work_from_params(State& state, const Graph& graph, CUgraphNodeParams& params, Work& work);

// Takes back what work_from_params made, when the node is refused.
void discard(State& state, Work& work);

}  // namespace nodewright::cpu
