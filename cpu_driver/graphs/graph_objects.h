// Graphs and nodes as the application builds them. The rules they keep: graph_rules.h. What runs: graph_exec.h.
#pragma once

#include <memory>
#include <vector>

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/graphs/user_object.h"
#include "cpu_driver/work/work.h"

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
  unsigned number = 0;  // of those made in its graph
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<GraphEdge> in;
};

// For graphs and executable graphs. No number comes back.
unsigned next_graph_number();

struct Graph {
  unsigned number = next_graph_number();
  unsigned nodes_made = 0;
  CUgraph handle = nullptr;     // null: a child's, which nobody has asked for yet
  GraphNode* holder = nullptr;  // the node that owns it and runs it
  std::vector<std::shared_ptr<GraphNode>> nodes;
  std::vector<std::shared_ptr<Conditional>> conditionals;  // whose handles were made for this graph
  std::vector<UserReferences> kept;
  std::weak_ptr<GraphExec> exec;  // the last one made from it
  bool capturing = false;
};

// The graph of a child node, the bodies of a conditional node.
std::vector<std::shared_ptr<Graph>> inner_graphs(const Work& work);

std::shared_ptr<Graph> new_graph(State& state);
void destroy_graph(State& state, Graph& graph);    // its handle, its nodes' handles, what they own
void destroy_node(State& state, GraphNode& node);  // with its edges
std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph);

// A node without edges; takes over `work`.
std::shared_ptr<GraphNode> new_node(State& state, Graph& graph, CUgraphNodeType type, Work work);

}  // namespace nodewright::cpu
