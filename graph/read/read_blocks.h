// The repeated parts of a graph that was built elsewhere, as layers of its plan: what captures of networks have.
#pragma once

#include "graph/node.h"

namespace nodewright {

// Nodes that repeat in order, by kind, kernel, shape, and the shape of a copy or a fill, become blocks: layers
// "block0", "block1" and so on, whose nodes are named within them, "block1.gemm.0". Runs of fewer than 8 nodes keep
// their names, as do nodes that allocate, free or hold a plan. O(nodes).
void name_blocks(Plan& plan);

}  // namespace nodewright
