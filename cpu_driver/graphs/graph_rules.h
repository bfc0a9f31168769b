// What may stand in a graph, and where: the rules for edges, cycles and nesting that cuda.h states, and what an H200's
// driver was seen to refuse.
#pragma once

#include "cpu_driver/graphs/graph_objects.h"

namespace nodewright::cpu {

// CUDA_SUCCESS if the edge may lead to `to`, which need not be in a graph yet.
CUresult check_edge(const GraphNode& from, const GraphNode& to, const CUgraphEdgeData& data);

// One node of a cycle, in the graph or in one inside it; null: every node can be ordered after its dependencies.
const GraphNode* find_cycle(const Graph& graph);

// CUDA_SUCCESS if a node of this type and work may be added to `graph`: bodies of conditional nodes hold few types,
// child graphs hold no conditional node, and no graph holds itself.
CUresult check_placement(const State& state, const Graph& graph, CUgraphNodeType type, const Work& work);

// CUDA_SUCCESS if the graph may be cloned: without allocations, frees, and kernels that the device may update.
CUresult check_cloning(const Graph& graph);
// CUDA_SUCCESS if nodes and edges of the graph may go.
CUresult check_removal(const Graph& graph);
// CUDA_SUCCESS if the graph may have an executable graph now: with conditional nodes, allocations, frees or kernels
// that the device may update, one at a time.
CUresult check_single_exec(const Graph& graph);

// Whether a kernel that the device may update stands in the graph or in one inside it.
bool holds_updatable_nodes(const Graph& graph);

// Whether a conditional node stands in the graph or in one inside it.
bool holds_conditional_nodes(const Graph& graph);

// Why `graph`, which belongs to a node, cannot be used in this way; CUDA_SUCCESS if it belongs to none.
CUresult check_free(const Graph& graph, const char* use);

}  // namespace nodewright::cpu
