#include "cpu_driver/work/node_work.h"

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_memory.h"
#include "cpu_driver/graphs/graph_rules.h"
#include "cpu_driver/work/semaphore_work.h"
#include "cpu_driver/work/waiting_work.h"
#include "runtime/calls/child_ownership.h"

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
  if (!is_copied(params) && !is_moved(params))
    return refuse(CUDA_ERROR_INVALID_VALUE, "no such ownership of a child graph");
  if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the child graph");
  if (holds_conditional_nodes(*graph))
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "the child graph holds a conditional node");
  if (const CUresult result = check_free(*graph, "a child graph again"); result != CUDA_SUCCESS) return result;
  const bool moved = is_moved(params);
  if (!moved)
    if (const CUresult result = check_cloning(*graph); result != CUDA_SUCCESS) return result;
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

CUresult allocate_work(State& state, const Graph& graph, CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, Work& work) {
  const CUmemPoolProps& pool = params.poolProps;
  if (pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !state.is_retained(primary_context(pool.location.id)))
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  "an allocation node's memory is pinned, without handles, on a device with a context");
  if (params.accessDescCount != 0)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "access of other devices to an allocation node on the CPU driver");
  AllocateWork allocate;
  const CUresult result = reserve_memory(state, &graph, params.bytesize, pool.location.id, allocate);
  params.dptr = allocate.address;
  if (!work.label.empty()) state.memory->name(allocate.address, work.label);
  work.what = std::move(allocate);
  return result;
}

CUresult free_work(const State& state, const Graph& graph, CUdeviceptr address, Work& work) {
  auto memory = memory_at(graph, address);
  if (memory == nullptr)
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  "no node of the graph allocates what the free node frees: " + state.memory->describe(address));
  work.what = FreeWork{std::move(memory), address};
  return CUDA_SUCCESS;
}

template <class Params>
CUresult semaphore_work(State& state, const CUexternalSemaphore* handles, const Params* params, unsigned count,
                        Work& work) {
  SemaphoreWork semaphores;
  const CUresult result = make_semaphore_work(state, handles, params, count, semaphores);
  work.what = std::move(semaphores);
  return result;
}

}  // namespace

CUresult work_from_params(State& state, const Graph& graph, CUgraphNodeParams& params, Work& work) {
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
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return allocate_work(state, graph, params.alloc, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_work(state, graph, params.free.dptr, work);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      if (foreign(params.memOp.ctx)) return refuse(CUDA_ERROR_INVALID_CONTEXT, "context of the batch of operations");
      ValueWork values;
      const CUresult result =
          make_value_work(state, params.memOp.count, params.memOp.paramArray, params.memOp.flags, values);
      work.what = std::move(values);
      return result;
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return semaphore_work(state, params.extSemSignal.extSemArray, params.extSemSignal.paramsArray,
                            params.extSemSignal.numExtSems, work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return semaphore_work(state, params.extSemWait.extSemArray, params.extSemWait.paramsArray,
                            params.extSemWait.numExtSems, work);
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
