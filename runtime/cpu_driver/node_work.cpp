#include "runtime/cpu_driver/node_work.h"

#include "runtime/cpu_driver/driver_state.h"
#include "runtime/cpu_driver/graph_rules.h"

namespace nodewright::cpu {
namespace {

CUresult host_work(const CUDA_HOST_NODE_PARAMS_v2& params, Work& work) {
  if (params.fn == nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, "no host function");
  work.what = HostWork{params.fn, params.userData};
  return CUDA_SUCCESS;
}

CUresult child_work(State& state, const CUDA_CHILD_GRAPH_NODE_PARAMS& params, Work& work) {
  const auto graph = state.graphs.find(params.graph);
  if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such child graph");
  if (params.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE &&
      params.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    return refuse(CUDA_ERROR_INVALID_VALUE, "no such ownership of a child graph");
  if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the child graph");
  if (holds_conditional_nodes(*graph))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "the child graph holds a conditional node");
  if (const CUresult result = check_free(*graph, "a child graph again"); result != CUDA_SUCCESS) return result;
  const bool moved = params.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  work.what = ChildWork{.graph = moved ? graph : clone_graph(state, *graph), .moved = moved};
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

// IF takes one body or two, WHILE one, SWITCH any number.
bool allowed(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size > 0;
    default:
      return false;
  }
}

CUresult conditional_work(State& state, CUDA_CONDITIONAL_NODE_PARAMS& params, Work& work) {
  const auto entry = state.conditionals.find(params.handle);
  auto condition = entry != state.conditionals.end() ? entry->second.lock() : nullptr;
  if (condition == nullptr || condition->graph == nullptr)
    return refuse(CUDA_ERROR_INVALID_HANDLE, "no such conditional handle: never made, or its graph was destroyed");
  if (!state.is_retained(params.ctx))
    return refuse(CUDA_ERROR_INVALID_CONTEXT, "the conditional node's context is not that of its handle");
  if (!allowed(params.type, params.size))
    return refuse(CUDA_ERROR_INVALID_VALUE, "conditional type " + std::to_string(params.type) + " with " +
                                                std::to_string(params.size) +
                                                " bodies: IF takes 1 or 2, WHILE 1, SWITCH 1 or more");
  ConditionalWork conditional{.condition = std::move(condition), .type = params.type, .bodies = {}, .handles = {}};
  for (unsigned i = 0; i < params.size; ++i) {
    conditional.bodies.push_back(new_graph(state));
    conditional.handles.push_back(conditional.bodies.back()->handle);
  }
  work.what = std::move(conditional);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult work_from_params(State& state, CUgraphNodeParams& params, Work& work) {
  if (params.reserved0[0] != 0 || params.reserved0[1] != 0 || params.reserved0[2] != 0 || params.reserved2 != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "reserved members of the node's parameters are not zero");
  const auto foreign = [&](CUcontext context) { return context != nullptr && !state.is_retained(context); };
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
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return conditional_work(state, params.conditional, work);
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

void discard(State& state, Work& work) {
  const auto* child = std::get_if<ChildWork>(&work.what);
  if (child != nullptr && child->moved) return;  // still the caller's
  for (const auto& inner : inner_graphs(work)) destroy_graph(state, *inner);
}

}  // namespace nodewright::cpu
