// Handles come and go with the objects; whatever a node owns goes with the node.
#include "cpu_driver/graphs/graph_objects.h"

#include <atomic>
#include <unordered_map>

#include "cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

uint64_t next_id() {
  static uint64_t last = 0;
  return ++last;
}

}  // namespace

std::vector<std::shared_ptr<Graph>> inner_graphs(const Work& work) {
  if (const auto* child = std::get_if<ChildWork>(&work.what)) return {child->graph};
  if (const auto* conditional = std::get_if<ConditionalWork>(&work.what)) return conditional->bodies;
  return {};
}

unsigned next_graph_number() {
  static std::atomic<unsigned> last = 0;
  return ++last;
}

std::shared_ptr<Graph> new_graph(State& state) {
  auto graph = std::make_shared<Graph>();
  graph->handle = state.graphs.add(graph);
  return graph;
}

namespace {

void release_node(State& state, GraphNode& node) {
  state.nodes.take(node.handle);
  for (const auto& inner : inner_graphs(node.work)) destroy_graph(state, *inner);
  if (auto* conditional = std::get_if<ConditionalWork>(&node.work.what)) conditional->condition->used = false;
}

}  // namespace

void destroy_graph(State& state, Graph& graph) {
  for (const auto& node : graph.nodes) release_node(state, *node);
  for (const auto& conditional : graph.conditionals) conditional->graph = nullptr;
  if (graph.handle != nullptr) state.graphs.take(graph.handle);
  graph.kept.clear();
}

void destroy_node(State& state, GraphNode& node) {
  Graph& graph = *node.owner;
  for (const auto& other : graph.nodes) std::erase_if(other->in, [&](const GraphEdge& e) { return e.from == &node; });
  release_node(state, node);
  std::erase_if(graph.nodes, [&](const auto& n) { return n.get() == &node; });
}

std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph) {
  auto clone = std::make_shared<Graph>();
  clone->kept = graph.kept;
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : graph.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work.what)) child->graph = clone_graph(state, *child->graph);
    const auto copy = new_node(state, *clone, node->type, std::move(work));
    copy->origin = node->id;
    twin[node.get()] = copy.get();
  }
  for (const auto& node : graph.nodes)
    for (const GraphEdge& edge : node->in) twin[node.get()]->in.push_back({twin[edge.from], edge.data});
  return clone;
}

std::shared_ptr<GraphNode> new_node(State& state, Graph& graph, CUgraphNodeType type, Work work) {
  auto node = std::make_shared<GraphNode>();
  node->owner = &graph;
  node->id = next_id();
  node->number = graph.nodes_made++;
  node->type = type;
  node->work = std::move(work);
  for (const auto& inner : inner_graphs(node->work)) inner->holder = node.get();
  if (auto* conditional = std::get_if<ConditionalWork>(&node->work.what)) conditional->condition->used = true;
  node->handle = state.nodes.add(node);
  graph.nodes.push_back(node);
  return node;
}

}  // namespace nodewright::cpu
