// Graphs and nodes as the application builds them, with CUDA's rules for edges. Not what runs: graph_exec.h.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "runtime/cpu_driver/work.h"

namespace nodewright::cpu {

struct GraphNode;
struct GraphExec;

struct GraphEdge {
  GraphNode* from;
  CUgraphEdgeData data;
};

struct GraphNode {
  CUgraphNode handle = nullptr;
  Graph* owner = nullptr;
  uint64_t id = 0;      // survives cloning and instantiation: tells which node an exec's node came from
  uint64_t origin = 0;  // of a clone: the id of the node it was cloned from
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<GraphEdge> in;
  int priority = 0, cooperative = 0;
};

struct Graph {
  CUgraph handle = nullptr;     // null: a child's, which nobody has asked for yet
  GraphNode* holder = nullptr;  // the node that owns it and runs it
  std::vector<std::shared_ptr<GraphNode>> nodes;
  bool capturing = false;
};

std::shared_ptr<Graph> new_graph(State& state);
void destroy_graph(State& state, Graph& graph);    // its handle, its nodes' handles, what they own
void destroy_node(State& state, GraphNode& node);  // with its edges
std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph);

// A node without edges; takes over `work`.
std::shared_ptr<GraphNode> new_node(State& state, Graph& graph, CUgraphNodeType type, Work work);

// CUDA_SUCCESS if the edge may be added to `to` (not yet in a graph: null `to_owner`).
CUresult check_edge(const GraphNode& from, const GraphNode& to, const CUgraphEdgeData& data);

// Whether every node can be ordered after its dependencies. Otherwise one node of a cycle.
const GraphNode* find_cycle(const Graph& graph);

// Turns polymorphic parameters into work. `ctx` fields must be null or the primary context.
CUresult work_from_params(State& state, const CUgraphNodeParams& params, Work& work);

}  // namespace nodewright::cpu
