// Entry point: the parameters of a node of any kind, as CUDA 13.2 reads them.
#include <bit>
#include <cstring>

#include "cpu_driver/graphs/node_lookup.h"
#include "runtime/calls/child_ownership.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult read_conditional(CUgraphNode handle, CUDA_CONDITIONAL_NODE_PARAMS& out) {
  return with_node<ConditionalWork>(handle, [&](State&, GraphNode&, ConditionalWork& work) {
    out.handle = work.condition->handle;
    out.type = work.type;
    out.size = static_cast<unsigned>(work.bodies.size());
    out.phGraph_out = work.handles.data();
    out.ctx = current_context;
    return CUDA_SUCCESS;
  });
}

CUresult read_fill(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS_v2& out) {
  CUDA_MEMSET_NODE_PARAMS held{};
  const CUresult result = cuGraphMemsetNodeGetParams(handle, &held);
  out = {held.dst, held.pitch, held.value, held.elementSize, held.width, held.height, current_context};
  return result;
}

CUresult read_host(CUgraphNode handle, CUDA_HOST_NODE_PARAMS_v2& out) {
  CUDA_HOST_NODE_PARAMS held{};
  const CUresult result = cuGraphHostNodeGetParams(handle, &held);
  out.fn = held.fn;
  out.userData = held.userData;
  return result;
}

CUresult read_child(CUgraphNode handle, CUDA_CHILD_GRAPH_NODE_PARAMS& out) {
  bool moved = false;
  CUresult result = with_node<ChildWork>(handle, [&](State&, GraphNode&, const ChildWork& work) {
    moved = work.moved;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  set_moved(out, moved);
  return cuGraphChildGraphNodeGetGraph(handle, &out.graph);
}

// By the entry point of a form that has the same members.
template <class Held, class Out>
CUresult read_same(CUresult (*read)(CUgraphNode, Held*), CUgraphNode handle, Out& out) {
  Held held{};
  const CUresult result = read(handle, &held);
  out = std::bit_cast<Out>(held);
  return result;
}

}  // namespace

// The pointers returned are the node's own, as those of the entry points for one kind are.
extern "C" CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type{};
  if (const CUresult result = cuGraphNodeGetType(handle, &type); result != CUDA_SUCCESS) return result;
  memset(out, 0, sizeof *out);
  out->type = type;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return read_same(cuGraphKernelNodeGetParams, handle, out->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      out->memcpy.copyCtx = current_context;
      return cuGraphMemcpyNodeGetParams(handle, &out->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return read_fill(handle, out->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
      return read_host(handle, out->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return read_child(handle, out->graph);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphEventRecordNodeGetEvent(handle, &out->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphEventWaitNodeGetEvent(handle, &out->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return read_same(cuGraphMemAllocNodeGetParams, handle, out->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphMemFreeNodeGetParams(handle, &out->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_same(cuGraphBatchMemOpNodeGetParams, handle, out->memOp);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return read_same(cuGraphExternalSemaphoresSignalNodeGetParams, handle, out->extSemSignal);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return read_same(cuGraphExternalSemaphoresWaitNodeGetParams, handle, out->extSemWait);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return read_conditional(handle, out->conditional);
    default:
      return CUDA_SUCCESS;  // an empty node has none
  }
}
