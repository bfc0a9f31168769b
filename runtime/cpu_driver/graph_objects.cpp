// The rules for nodes and edges: those that cuda.h states, and what an H200's driver was seen to refuse.
#include "runtime/cpu_driver/graph_objects.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

uint64_t next_id() {
  static uint64_t last = 0;
  return ++last;
}

bool is_zero(const unsigned char* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char b) { return b == 0; });
}

std::string name_of(const GraphNode& node) {
  return node.work.label.empty() ? "node " + std::to_string(node.id) : "'" + node.work.label + "'";
}

CUresult host_work(const CUDA_HOST_NODE_PARAMS_v2& params, Work& work) {
  if (params.fn == nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, "no host function");
  work.what = HostWork{params.fn, params.userData};
  return CUDA_SUCCESS;
}

CUresult child_work(State& state, const CUDA_CHILD_GRAPH_NODE_PARAMS& params, Work& work) {
  const auto graph = state.graphs.find(params.graph);
  if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such child graph");
  if (params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "child graphs are cloned, not moved");
  work.what = ChildWork{clone_graph(state, *graph)};
  return CUDA_SUCCESS;
}

CUresult event_work(State& state, CUevent handle, bool record, Work& work) {
  const auto event = state.events.find(handle);
  if (event == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
  if (record)
    work.what = RecordWork{event};
  else
    work.what = WaitWork{event};
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<Graph> new_graph(State& state) {
  auto graph = std::make_shared<Graph>();
  graph->handle = state.graphs.add(graph);
  return graph;
}

namespace {

void release_node(State& state, GraphNode& node) {
  state.nodes.take(node.handle);
  if (auto* child = std::get_if<ChildWork>(&node.work.what)) destroy_graph(state, *child->graph);
}

}  // namespace

void destroy_graph(State& state, Graph& graph) {
  for (const auto& node : graph.nodes) release_node(state, *node);
  if (graph.handle != nullptr) state.graphs.take(graph.handle);
}

void destroy_node(State& state, GraphNode& node) {
  Graph& graph = *node.owner;
  for (const auto& other : graph.nodes) std::erase_if(other->in, [&](const GraphEdge& e) { return e.from == &node; });
  release_node(state, node);
  std::erase_if(graph.nodes, [&](const auto& n) { return n.get() == &node; });
}

std::shared_ptr<Graph> clone_graph(State& state, const Graph& graph) {
  auto clone = std::make_shared<Graph>();
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : graph.nodes) {
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work.what)) child->graph = clone_graph(state, *child->graph);
    const auto copy = new_node(state, *clone, node->type, std::move(work));
    copy->origin = node->id;
    copy->priority = node->priority;
    copy->cooperative = node->cooperative;
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
  node->type = type;
  node->work = std::move(work);
  if (auto* child = std::get_if<ChildWork>(&node->work.what)) child->graph->holder = node.get();
  node->handle = state.nodes.add(node);
  graph.nodes.push_back(node);
  return node;
}

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

CUresult work_from_params(State& state, const CUgraphNodeParams& params, Work& work) {
  if (params.reserved0[0] != 0 || params.reserved0[1] != 0 || params.reserved0[2] != 0 || params.reserved2 != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "reserved members of the node's parameters are not zero");
  const auto foreign = [](CUcontext context) { return context != nullptr && context != primary_context(); };
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const auto& from = params.kernel;
      const CUDA_KERNEL_NODE_PARAMS launch{from.func,         from.gridDimX,  from.gridDimY,  from.gridDimZ,
                                           from.blockDimX,    from.blockDimY, from.blockDimZ, from.sharedMemBytes,
                                           from.kernelParams, from.extra,     from.kern,      from.ctx};
      KernelWork kernel;
      const CUresult result = make_kernel_work(state, launch, kernel);
      work.what = std::move(kernel);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags != 0 || params.memcpy.reserved != 0 || foreign(params.memcpy.copyCtx))
        return refuse(CUDA_ERROR_INVALID_VALUE, "flags, reserved or context of the copy node");
      work.what = CopyWork{.copy = params.memcpy.copyParams};
      return check_copy(state, params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      if (foreign(params.memset.ctx)) return refuse(CUDA_ERROR_INVALID_CONTEXT, "context of the fill node");
      const auto& from = params.memset;
      const CUDA_MEMSET_NODE_PARAMS fill{.dst = from.dst,
                                         .pitch = from.pitch,
                                         .value = from.value,
                                         .elementSize = from.elementSize,
                                         .width = from.width,
                                         .height = from.height};
      work.what = FillWork{fill};
      return check_fill(state, fill);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_work(params.host, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_work(state, params.graph, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work(state, params.eventRecord.event, true, work);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work(state, params.eventWait.event, false, work);
    default:
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "node type " + std::to_string(params.type) + " on the CPU driver");
  }
}

}  // namespace nodewright::cpu
