// Entry points: what one node of a graph does, read and changed. Executable graphs: entries_exec_parameters.cpp.
#include <algorithm>

#include "cpu_driver/graphs/node_lookup.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

// Calls read(State&, const NodeWork&, *out).
template <class NodeWork, class Out, class Read>
CUresult read_node(CUgraphNode handle, Out* out, Read&& read) {
  return with_node<NodeWork>(handle, [&](State& s, GraphNode&, NodeWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    read(s, work, *out);
    return CUDA_SUCCESS;
  });
}

CUresult keep_attributes(const State& s, const KernelWork& changed, KernelWork& work) {
  const CUresult result = check_attributes(s, changed);
  if (result == CUDA_SUCCESS) work.attributes = changed.attributes;
  return result;
}

}  // namespace

// The pointers returned are the node's own and last until its parameters change.
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  return read_node<KernelWork>(handle, out, [](State&, KernelWork& work, CUDA_KERNEL_NODE_PARAMS& params) {
    work.params.clear();
    for (const CpuKernelParameter& parameter : work.loaded->image->parameters)
      work.params.push_back(work.args.data() + parameter.offset);
    work.extra_bytes = work.args.size();
    void* const extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, work.args.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                           &work.extra_bytes, CU_LAUNCH_PARAM_END};
    std::copy(std::begin(extra), std::end(extra), work.extra);
    params = {work.by_kernel ? nullptr : work.loaded->function,
              work.grid.x,
              work.grid.y,
              work.grid.z,
              work.block.x,
              work.block.y,
              work.block.z,
              work.shared_bytes,
              work.by_extra ? nullptr : work.params.data(),
              work.by_extra ? work.extra : nullptr,
              work.by_kernel ? work.loaded->kernel : nullptr,
              work.green != nullptr ? work.green->context : current_context};
  });
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS* params) {
  return with_node<KernelWork>(handle, [&](State& s, GraphNode& node, KernelWork& work) {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    KernelWork changed;
    changed.attributes = work.attributes;
    if (const CUresult result = make_kernel_work(s, *params, changed); result != CUDA_SUCCESS) return result;
    const bool programmatic = std::any_of(node.in.begin(), node.in.end(), [](const GraphEdge& e) {
      return e.data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    });
    if (programmatic && !changed.loaded->image->waits)
      return refuse(CUDA_ERROR_INVALID_VALUE, "the node has a programmatic in-edge and the new kernel never waits");
    work = std::move(changed);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                               CUkernelNodeAttrValue* value) {
  return with_node<KernelWork>(handle, [&](State&, GraphNode&, const KernelWork& work) {
    return value != nullptr ? get_attribute(work.attributes, attribute, *value) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                               const CUkernelNodeAttrValue* value) {
  return with_node<KernelWork>(handle, [&](State& s, GraphNode&, KernelWork& work) {
    KernelWork changed = work;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = set_attribute(changed.attributes, attribute, *value); result != CUDA_SUCCESS)
      return result;
    return keep_attributes(s, changed, work);
  });
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return with_node<KernelWork>(to, [&](State& s, GraphNode&, KernelWork& work) {
    const auto source = s.nodes.find(from);
    if (source == nullptr) return no_node();
    const auto* copied = std::get_if<KernelWork>(&source->work.what);
    if (copied == nullptr) return wrong_type();
    if (work.attributes.device_node != nullptr || copied->attributes.device_node != nullptr)
      return refuse(CUDA_ERROR_INVALID_VALUE, "attributes of a kernel that the device may update cannot be copied");
    KernelWork changed = work;
    changed.attributes = copied->attributes;
    return keep_attributes(s, changed, work);
  });
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* out) {
  return read_node<CopyWork>(handle, out,
                             [](State&, const CopyWork& work, CUDA_MEMCPY3D& params) { params = work.copy; });
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* out) {
  return read_node<FillWork>(handle, out,
                             [](State&, const FillWork& work, CUDA_MEMSET_NODE_PARAMS& params) { params = work.fill; });
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* out) {
  return read_node<HostWork>(handle, out, [](State&, const HostWork& work, CUDA_HOST_NODE_PARAMS& params) {
    params = {work.function, work.data};
  });
}

// The graph stays the node's: changes to it are changes to the node.
CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  return read_node<ChildWork>(handle, out, [](State& s, const ChildWork& work, CUgraph& graph) {
    if (work.graph->handle == nullptr) work.graph->handle = s.graphs.add(work.graph);
    graph = work.graph->handle;
  });
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent* out) {
  return read_node<RecordWork>(handle, out,
                               [](State&, const RecordWork& work, CUevent& event) { event = work.event->handle; });
}

CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode handle, CUevent* out) {
  return read_node<WaitWork>(handle, out,
                             [](State&, const WaitWork& work, CUevent& event) { event = work.event->handle; });
}
