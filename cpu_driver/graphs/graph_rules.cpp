#include "cpu_driver/graphs/graph_rules.h"

#include <algorithm>
#include <unordered_map>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_memory.h"

namespace nodewright::cpu {
namespace {

bool is_zero(const unsigned char* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char b) { return b == 0; });
}

std::string name_of(const GraphNode& node) {
  return node.work.label.empty() ? "node " + std::to_string(node.id) : "'" + node.work.label + "'";
}

const Graph* graph_around(const Graph& graph) { return graph.holder != nullptr ? graph.holder->owner : nullptr; }

// The node of this type whose graph or body holds `graph`, at any distance; null if there is none.
const GraphNode* holder_of_type(const Graph& graph, CUgraphNodeType type) {
  for (const Graph* at = &graph; at->holder != nullptr; at = graph_around(*at))
    if (at->holder->type == type) return at->holder;
  return nullptr;
}

// CUDA_CONDITIONAL_NODE_PARAMS::phGraph_out in cuda.h.
bool may_stand_in_body(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
      return "a host node";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "an event wait node";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "an event record node";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "an allocation node";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "a free node";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "a batch of memory operations";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "an external semaphore node";
    default:
      return "a node of this type";
  }
}

bool touches_array(const CUDA_MEMCPY3D& copy) {
  return copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY;
}

// CUDA C++ Programming Guide, "Conditional Node Body Graph Requirements": copies in bodies touch device memory and
// pinned memory alone.
bool touches_pageable_memory(const State& state, const CUDA_MEMCPY3D& copy) {
  return state.is_pageable(copy.srcMemoryType, copy.srcHost) || state.is_pageable(copy.dstMemoryType, copy.dstHost);
}

CUresult check_in_body(const State& state, CUgraphNodeType type, const Work& work, const std::string& body) {
  if (!may_stand_in_body(type))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, std::string(type_name(type)) + " in a body of conditional node " + body +
                                                ", which holds kernels, copies, fills, empty nodes, child graphs and "
                                                "conditionals alone");
  const auto* copy = std::get_if<CopyWork>(&work.what);
  if (copy != nullptr && touches_pageable_memory(state, copy->copy))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "a copy of pageable memory in a body of conditional node " + body);
  if (copy != nullptr && touches_array(copy->copy))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "a copy to or from an array in a body of conditional node " + body);
  for (const auto& inner : inner_graphs(work))
    for (const auto& node : inner->nodes)
      if (const CUresult result = check_in_body(state, node->type, node->work, body); result != CUDA_SUCCESS)
        return result;
  return CUDA_SUCCESS;
}

// A conditional node obeys a handle of a graph that it is inside of, and no other node obeys the same handle.
CUresult check_condition(const Graph& graph, const Conditional& condition) {
  if (condition.used) return refuse(CUDA_ERROR_INVALID_VALUE, "another conditional node uses the same handle");
  for (const Graph* at = &graph; at != nullptr; at = graph_around(*at))
    if (at == condition.graph) return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_VALUE, "the conditional handle was made for another graph");
}

const GraphNode* cycle_of_one(const Graph& graph) {
  std::unordered_map<const GraphNode*, size_t> missing;
  std::unordered_map<const GraphNode*, std::vector<const GraphNode*>> before;
  std::vector<const GraphNode*> ready;
  for (const auto& node : graph.nodes) {
    missing[node.get()] = node->in.size();
    for (const GraphEdge& edge : node->in) before[edge.from].push_back(node.get());
    if (node->in.empty()) ready.push_back(node.get());
  }
  size_t ordered = 0;
  while (!ready.empty()) {
    const GraphNode* node = ready.back();
    ready.pop_back();
    ++ordered;
    for (const GraphNode* next : before[node])
      if (--missing[next] == 0) ready.push_back(next);
  }
  if (ordered == graph.nodes.size()) return nullptr;
  for (const auto& node : graph.nodes)
    if (missing[node.get()] > 0) return node.get();
  return nullptr;
}

}  // namespace

CUresult check_edge(const GraphNode& from, const GraphNode& to, const CUgraphEdgeData& data) {
  const std::string edge = "edge " + name_of(from) + " -> " + name_of(to) + ": ";
  const auto bad = [&](const std::string& why) { return refuse(CUDA_ERROR_INVALID_VALUE, edge + why); };
  if (!is_zero(data.reserved, sizeof data.reserved)) return bad("reserved bytes are not zero");
  if (data.to_port != 0) return bad("to_port is not 0");
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
    return data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT ? CUDA_SUCCESS : bad("a full edge has a port");
  if (data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return bad("no such edge type");
  if (data.from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
      data.from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)
    return bad("a programmatic edge leaves port 1 or 2");
  if (from.type != CU_GRAPH_NODE_TYPE_KERNEL || to.type != CU_GRAPH_NODE_TYPE_KERNEL)
    return bad("a programmatic edge joins two kernels");
  const KernelImage& image = *std::get<KernelWork>(to.work.what).loaded->image;
  if (!image.waits)
    return bad("a programmatic edge into kernel " + image.name + ", whose code never waits for its inputs");
  return CUDA_SUCCESS;
}

const GraphNode* find_cycle(const Graph& graph) {
  if (const GraphNode* node = cycle_of_one(graph); node != nullptr) return node;
  for (const auto& node : graph.nodes)
    for (const auto& inner : inner_graphs(node->work))
      if (const GraphNode* found = find_cycle(*inner); found != nullptr) return found;
  return nullptr;
}

bool holds_conditional_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return true;
    const auto* child = std::get_if<ChildWork>(&node->work.what);
    return child != nullptr && holds_conditional_nodes(*child->graph);
  });
}

bool holds_updatable_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const auto* kernel = std::get_if<KernelWork>(&node->work.what);
    if (kernel != nullptr && kernel->attributes.device_node != nullptr) return true;
    const auto inner = inner_graphs(node->work);
    return std::any_of(inner.begin(), inner.end(), [](const auto& graph) { return holds_updatable_nodes(*graph); });
  });
}

CUresult check_cloning(const Graph& graph) {
  if (holds_memory_nodes(graph))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "a graph with allocations or frees cannot be cloned");
  if (holds_updatable_nodes(graph))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "a graph with kernels that the device may update cannot be cloned");
  return CUDA_SUCCESS;
}

CUresult check_removal(const Graph& graph) {
  if (holds_memory_nodes(graph))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "nodes and edges of a graph with allocations or frees cannot be removed");
  return CUDA_SUCCESS;
}

CUresult check_single_exec(const Graph& graph) {
  if (graph.exec.expired()) return CUDA_SUCCESS;
  const char* what = holds_conditional_nodes(graph) ? "conditional nodes"
                     : holds_memory_nodes(graph)    ? "allocations or frees"
                     : holds_updatable_nodes(graph) ? "kernels that the device may update"
                                                    : nullptr;
  if (what == nullptr) return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_VALUE, std::string("a graph with ") + what +
                                              " has one executable graph at a time; destroy the other one first");
}

CUresult check_free(const Graph& graph, const char* use) {
  if (graph.holder == nullptr) return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_VALUE,
                std::string("the graph belongs to ") + name_of(*graph.holder) + " and cannot be " + use);
}

CUresult check_placement(const State& state, const Graph& graph, CUgraphNodeType type, const Work& work) {
  if (const GraphNode* node = holder_of_type(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL); node != nullptr)
    if (const CUresult result = check_in_body(state, type, work, name_of(*node)); result != CUDA_SUCCESS) return result;
  if (const auto* conditional = std::get_if<ConditionalWork>(&work.what)) {
    if (const GraphNode* node = holder_of_type(graph, CU_GRAPH_NODE_TYPE_GRAPH); node != nullptr)
      return refuse(CUDA_ERROR_NOT_SUPPORTED,
                    "a conditional node inside child node " + name_of(*node) + ": child graphs hold none");
    return check_condition(graph, *conditional->condition);
  }
  for (const auto& inner : inner_graphs(work))
    for (const Graph* at = &graph; at != nullptr; at = graph_around(*at))
      if (at == inner.get()) return refuse(CUDA_ERROR_INVALID_VALUE, "the child graph would hold itself");
  return CUDA_SUCCESS;
}

}  // namespace nodewright::cpu
