// Entry points: what one node of an executable graph does from its next launch on.
#include <algorithm>
#include <cstring>

#include "cpu_driver/graphs/graph_rules.h"
#include "cpu_driver/graphs/node_lookup.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

bool of_graph(const State& state, CUmemorytype type, CUdeviceptr address) {
  if (type == CU_MEMORYTYPE_HOST) return false;
  const DeviceMemory::Block* block = state.memory->find_reserved(address, 1);
  return block != nullptr && block->of_graph;
}

bool has_programmatic_edge(const ExecNode& node) {
  return std::any_of(node.edges.begin(), node.edges.end(),
                     [](const CUgraphEdgeData& data) { return data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC; });
}

}  // namespace

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* params) {
  return change_exec_node<KernelWork>(handle, node, [&](State& s, KernelWork& next, const ExecNode& now) {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const int device = next.device;
    const auto green = next.green;
    if (const CUresult result = make_kernel_work(s, *params, next); result != CUDA_SUCCESS) return result;
    if (next.device != device || next.green != green)
      return refuse(CUDA_ERROR_INVALID_VALUE, "the context of a kernel node's function may not change");
    if (!next.loaded->image->waits && has_programmatic_edge(now))
      return refuse(CUDA_ERROR_INVALID_VALUE, "a programmatic edge into kernel " + next.loaded->image->name +
                                                  ", whose code never waits for its inputs");
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                                CUcontext context) {
  return change_exec_node<CopyWork>(handle, node, [&](State& s, CopyWork& next, const ExecNode&) {
    if (copy == nullptr || !s.is_retained(context)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_copy(s, *copy); result != CUDA_SUCCESS) return result;
    if (copy->srcMemoryType != next.copy.srcMemoryType || copy->dstMemoryType != next.copy.dstMemoryType)
      return refuse(CUDA_ERROR_INVALID_VALUE, "the kinds of memory of a copy node may not change");
    // cuGraphExecMemcpyNodeSetParams in cuda.h.
    const auto flat = [](const CUDA_MEMCPY3D& c) { return c.Height == 1 && c.Depth == 1; };
    if (!flat(*copy) || !flat(next.copy))
      return refuse(CUDA_ERROR_INVALID_VALUE, "only one-dimensional copy nodes take other parameters");
    if (copy->WidthInBytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "the node would copy nothing");
    // No rule of cuda.h; NVIDIA's driver does so (H200, 580.159.04).
    for (const CUDA_MEMCPY3D& c : {*copy, next.copy})
      if (of_graph(s, c.srcMemoryType, c.srcDevice) || of_graph(s, c.dstMemoryType, c.dstDevice))
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "a copy with an end in memory that a graph allocates takes no parameters");
    next.copy = *copy;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
  return change_exec_node<FillWork>(handle, node, [&](State& s, FillWork& next, const ExecNode&) {
    if (fill == nullptr || !s.is_retained(context)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_fill(s, *fill); result != CUDA_SUCCESS) return result;
    if (fill->width == 0 || fill->height == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "the node would fill nothing");
    if (!may_become(next.fill, *fill))
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "the number of a fill node's rows may not change, and where there are several they take another "
                    "address and value alone");
    next.fill = *fill;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS* params) {
  return change_exec_node<HostWork>(handle, node, [&](State&, HostWork& next, const ExecNode&) {
    if (params == nullptr || params->fn == nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, "no host function");
    next = {params->fn, params->userData};
    return CUDA_SUCCESS;
  });
}

namespace {

template <class EventWork>
CUresult set_event(CUgraphExec handle, CUgraphNode node, CUevent event_handle) {
  return change_exec_node<EventWork>(handle, node, [&](State& s, EventWork& next, const ExecNode&) {
    next.event = s.events.find(event_handle);
    return next.event != nullptr ? CUDA_SUCCESS : refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
  });
}

}  // namespace

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_event<RecordWork>(handle, node, event);
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event) {
  return set_event<WaitWork>(handle, node, event);
}

// As cuGraphExecUpdate, for the nodes inside one child node.
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraph child) {
  return with_exec_node(handle, node, [&](State& s, GraphExec& exec, const ExecPlace& place) {
    const ExecNode& now = exec.at(place);
    if (!std::holds_alternative<ChildWork>(now.work.what)) return wrong_type();
    const auto graph = s.graphs.find(child);
    if (graph == nullptr) return no_graph();
    if (find_cycle(*graph) != nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, "the graph has a cycle");
    const auto next = make_body(*graph);
    const UpdateProblem problem = compare_for_update(*now.inner.front(), *next, exec.flags);
    if (problem.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "the graph differs from the child at node " + std::to_string(problem.node));
    if (!all_loaded(*next)) return refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of the graph was unloaded");
    keep_identity(*now.inner.front(), *next);
    exec.change(place).inner.front() = next;
    return CUDA_SUCCESS;
  });
}
