#include "graph/change/exec_parameters.h"

#include <vector>

#include "graph/nodes/host_call.h"
#include "graph/nodes/node_parameters.h"

namespace nodewright {

CUresult set_exec_parameters(const Driver& driver, CUgraphExec exec, CUcontext context, CUgraphNode handle,
                             const PlanNode& node, const BuiltPlan::NodeState& state) {
  driver.label(node.name);
  if (node.kind == NodeKind::values) {
    std::vector<CUstreamBatchMemOpParams> values = value_parameters(state.values);
    const CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{context, static_cast<unsigned>(values.size()), values.data(), 0};
    return driver.cuGraphExecBatchMemOpNodeSetParams(exec, handle, &parameters);
  }
  if (node.kind == NodeKind::memcpy) {
    const CUDA_MEMCPY3D parameters = copy_parameters(state.copy);
    return driver.cuGraphExecMemcpyNodeSetParams(exec, handle, &parameters, context);
  }
  if (node.kind == NodeKind::host) {
    const CUDA_HOST_NODE_PARAMS parameters{call_host, state.host.get()};
    return driver.cuGraphExecHostNodeSetParams(exec, handle, &parameters);
  }
  if (node.kind == NodeKind::event_record) return driver.cuGraphExecEventRecordNodeSetEvent(exec, handle, state.event);
  if (node.kind == NodeKind::event_wait) return driver.cuGraphExecEventWaitNodeSetEvent(exec, handle, state.event);
  if (node.kind == NodeKind::memset) {
    const CUDA_MEMSET_NODE_PARAMS parameters = fill_parameters(state.fill);
    return driver.cuGraphExecMemsetNodeSetParams(exec, handle, &parameters, context);
  }
  ParameterPointers pointers(state.kernel, state.arguments);
  const CUDA_KERNEL_NODE_PARAMS parameters =
      kernel_parameters(*state.kernel, state.shape, pointers.get(), node.attributes.green);
  return driver.cuGraphExecKernelNodeSetParams(exec, handle, &parameters);
}

std::string_view exec_entry_of(const PlanNode& node) {
  switch (node.kind) {
    case NodeKind::memcpy:
      return "cuGraphExecMemcpyNodeSetParams";
    case NodeKind::memset:
      return "cuGraphExecMemsetNodeSetParams";
    case NodeKind::host:
      return "cuGraphExecHostNodeSetParams";
    case NodeKind::event_record:
      return "cuGraphExecEventRecordNodeSetEvent";
    case NodeKind::event_wait:
      return "cuGraphExecEventWaitNodeSetEvent";
    case NodeKind::values:
      return "cuGraphExecBatchMemOpNodeSetParams";
    default:
      return "cuGraphExecKernelNodeSetParams";
  }
}

}  // namespace nodewright
