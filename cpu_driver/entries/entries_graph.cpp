// Entry points: graphs, nodes, edges, as the application builds and reads them. Parameters:
// entries_node_parameters.cpp.
#include <algorithm>
#include <cstring>

#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/graph_memory.h"
#include "cpu_driver/graphs/graph_rules.h"
#include "cpu_driver/graphs/node_lookup.h"
#include "cpu_driver/work/node_work.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

bool is_default(const CUgraphEdgeData& data) {
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT && data.from_port == 0 && data.to_port == 0;
}

// The list a query returns: at most `*count` entries of it, `*count` set to how many there are or were written.
template <class T>
void return_list(const std::vector<T>& from, T* to, size_t* count) {
  if (to == nullptr) {
    *count = from.size();
    return;
  }
  for (size_t i = 0; i < *count; ++i) to[i] = i < from.size() ? from[i] : T{};
  *count = std::min(*count, from.size());
}

CUresult edges_of_new_node(State& s, const Graph& graph, const GraphNode& node, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, size_t count, std::vector<GraphEdge>& edges) {
  if (count > 0 && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const auto from = s.nodes.find(dependencies[i]);
    if (from == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "dependency " + std::to_string(i) + " is no node");
    if (from->owner != &graph)
      return refuse(CUDA_ERROR_INVALID_VALUE, "dependency " + std::to_string(i) + " is a node of another graph");
    if (std::any_of(edges.begin(), edges.end(), [&](const GraphEdge& e) { return e.from == from.get(); }))
      return refuse(CUDA_ERROR_INVALID_VALUE, "dependency " + std::to_string(i) + " is given twice");
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    if (const CUresult result = check_edge(*from, node, edge); result != CUDA_SUCCESS) return result;
    edges.push_back({from.get(), edge});
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int flags) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = new_graph(s)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
  return enter_release([&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the graph");
    if (const CUresult result = check_free(*graph, "destroyed"); result != CUDA_SUCCESS) return result;
    destroy_graph(s, *graph);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphClone(CUgraph* out, CUgraph handle) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (holds_conditional_nodes(*graph))
      return refuse(CUDA_ERROR_INVALID_VALUE, "a graph with conditional nodes cannot be cloned");
    if (const CUresult result = check_cloning(*graph); result != CUDA_SUCCESS) return result;
    const auto clone = clone_graph(s, *graph);
    *out = clone->handle = s.graphs.add(clone);
    return CUDA_SUCCESS;
  });
}

// A handle lives as long as its graph, and as the executable graphs made from that.
CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle, CUcontext context,
                                                unsigned int default_value, unsigned int flags) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
      return refuse(CUDA_ERROR_INVALID_VALUE, "no place for the handle, or unknown flags");
    if (!s.is_retained(context))
      return refuse(CUDA_ERROR_INVALID_CONTEXT, "a conditional handle needs a primary context that is retained");
    const auto conditional = std::make_shared<Conditional>();
    static uint64_t last = 0;
    *out = conditional->handle = kConditionalHandles | ++last;
    conditional->graph = graph.get();
    conditional->assign_default = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
    conditional->default_value = default_value;
    graph->conditionals.push_back(conditional);
    std::erase_if(s.conditionals, [](const auto& entry) { return entry.second.expired(); });
    s.conditionals[*out] = conditional;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies,
                                const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const std::string label = take_label();
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    GraphNode probe;
    probe.type = params->type;
    probe.work.label = label;
    if (const CUresult result = work_from_params(s, *graph, *params, probe.work); result != CUDA_SUCCESS) return result;
    std::vector<GraphEdge> edges;
    CUresult result = check_placement(s, *graph, params->type, probe.work);
    if (result == CUDA_SUCCESS) result = edges_of_new_node(s, *graph, probe, dependencies, data, count, edges);
    if (result == CUDA_SUCCESS) result = check_memory(*graph, probe.work, edges);
    if (result != CUDA_SUCCESS) {
      discard(s, probe.work);
      return result;
    }
    const auto node = new_node(s, *graph, params->type, std::move(probe.work));
    node->in = std::move(edges);
    note_freed(node->work);
    *out = node->handle;
    if (auto* conditional = std::get_if<ConditionalWork>(&node->work.what))
      params->conditional.phGraph_out = conditional->handles.data();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode handle) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto node = s.nodes.find(handle);
    if (node == nullptr) return no_node();
    if (node->owner->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the node's graph");
    if (const CUresult result = check_removal(*node->owner); result != CUDA_SUCCESS) return result;
    if (const auto* kernel = std::get_if<KernelWork>(&node->work.what);
        kernel != nullptr && kernel->attributes.device_node != nullptr)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "a kernel that the device may update stays in its graph");
    destroy_node(s, *node);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                        const CUgraphEdgeData* data, size_t count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::pair<GraphNode*, GraphEdge>> added;
    for (size_t i = 0; i < count; ++i) {
      const auto source = s.nodes.find(from[i]), target = s.nodes.find(to[i]);
      if (source == nullptr || target == nullptr) return no_node();
      if (source->owner != graph.get() || target->owner != graph.get())
        return refuse(CUDA_ERROR_INVALID_VALUE, "edge " + std::to_string(i) + " joins a node of another graph");
      if (source == target)
        return refuse(CUDA_ERROR_INVALID_VALUE, "edge " + std::to_string(i) + " joins a node with itself");
      const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
      const auto same = [&](const GraphEdge& e) { return e.from == source.get(); };
      const bool repeated = std::any_of(added.begin(), added.end(), [&](const auto& pair) {
        return pair.first == target.get() && same(pair.second);
      });
      if (repeated || std::any_of(target->in.begin(), target->in.end(), same))
        return refuse(CUDA_ERROR_INVALID_VALUE, "edge " + std::to_string(i) + " exists already");
      if (const CUresult result = check_edge(*source, *target, edge); result != CUDA_SUCCESS) return result;
      added.push_back({target.get(), {source.get(), edge}});
    }
    for (auto& [target, edge] : added) target->in.push_back(edge);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData* data, size_t count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the graph");
    if (const CUresult result = check_removal(*graph); result != CUDA_SUCCESS) return result;
    for (size_t i = 0; i < count; ++i) {
      const auto source = s.nodes.find(from[i]), target = s.nodes.find(to[i]);
      if (source == nullptr || target == nullptr) return no_node();
      const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
      const auto same = [&](const GraphEdge& e) {
        return e.from == source.get() && memcmp(&e.data, &edge, sizeof edge) == 0;
      };
      if (target->owner != graph.get() || std::none_of(target->in.begin(), target->in.end(), same))
        return refuse(CUDA_ERROR_INVALID_VALUE, "edge " + std::to_string(i) + " with this data is not in the graph");
    }
    for (size_t i = 0; i < count; ++i) {
      const auto source = s.nodes.find(from[i]);
      std::erase_if(s.nodes.find(to[i])->in, [&](const GraphEdge& e) { return e.from == source.get(); });
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> all;
    for (const auto& node : graph->nodes) all.push_back(node->handle);
    return_list(all, nodes, count);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                                 size_t* count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return no_graph();
    if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> sources, targets;
    std::vector<CUgraphEdgeData> edges;
    for (const auto& node : graph->nodes)
      for (const GraphEdge& edge : node->in) {
        sources.push_back(edge.from->handle);
        targets.push_back(node->handle);
        edges.push_back(edge.data);
      }
    if (from != nullptr && data == nullptr && !std::all_of(edges.begin(), edges.end(), is_default))
      return refuse(CUDA_ERROR_LOSSY_QUERY, "edges with data, but no array for it");
    size_t room = *count;
    if (from != nullptr && data != nullptr) return_list(edges, data, &room);
    room = *count;
    return_list(sources, from, &room);
    return_list(targets, to, count);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto node = s.nodes.find(handle);
    if (node == nullptr) return no_node();
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
  });
}
