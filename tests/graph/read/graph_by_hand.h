// Graphs that tests make by the driver's entry points, over the buffers of every_kind.h.
#pragma once

#include <vector>

#include "graph/nodes/graph_handle.h"
#include "tests/graph/nodes/every_kind.h"

namespace nodewright {

class GraphByHandTest : public EveryKindTest {
 protected:
  GraphHandle new_graph() {
    CUgraph graph = nullptr;
    driver().check(driver().cuGraphCreate(&graph, 0), "cuGraphCreate", "create", "graph");
    return GraphHandle(driver(), graph);
  }
  CUgraphNode add(const GraphHandle& graph, CUgraphNodeParams params, std::vector<CUgraphNode> before = {},
                  std::vector<CUgraphEdgeData> edges = {}) {
    CUgraphNode node = nullptr;
    driver().check(driver().cuGraphAddNode(&node, graph.get(), before.data(), edges.empty() ? nullptr : edges.data(),
                                           before.size(), &params),
                   "cuGraphAddNode", "add", "node");
    return node;
  }
  CUgraphNodeParams accumulate_params(void** pointers) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    params.kernel.func = machine().accumulate.loaded->function;
    const LaunchShape shape = blend_shape(n);
    params.kernel.gridDimX = shape.grid[0];
    params.kernel.blockDimX = shape.block[0];
    params.kernel.gridDimY = params.kernel.gridDimZ = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = pointers;
    return params;
  }
  CUgraphNode add_accumulate(const GraphHandle& graph, const Words& y, const Words& x,
                             std::vector<CUgraphNode> before = {}) {
    const Accumulate args{.y = y, .x = x, .salt = 2};
    void* pointers[] = {const_cast<Accumulate*>(&args)};
    return add(graph, accumulate_params(pointers), std::move(before));
  }
};

}  // namespace nodewright
