// Entry points: batched memory operations and external semaphores, on streams and as nodes.
#include <algorithm>

#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/node_lookup.h"
#include "cpu_driver/work/semaphore_work.h"
#include "cpu_driver/work/waiting_work.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult submit(State& s, Lock& lock, const std::shared_ptr<Stream>& stream, CUgraphNodeType type, Work work) {
  if (stream->capture != nullptr) return capture_work(s, *stream, type, std::move(work));
  Operation operation;
  operation.work = std::move(work);
  s.executor->enqueue(lock, stream, std::move(operation));
  return s.sticky;
}

template <class Params>
CUresult submit_semaphores(const CUexternalSemaphore* handles, const Params* params, unsigned count, CUstream stream,
                           CUgraphNodeType type) {
  return enter(Needs::context, [&](State& s, Lock& lock) -> CUresult {
    const auto found = s.find_stream(stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    SemaphoreWork work;
    if (const CUresult result = make_semaphore_work(s, handles, params, count, work); result != CUDA_SUCCESS)
      return result;
    return submit(s, lock, found, type, {take_label(), std::move(work)});
  });
}

CUresult same_direction(const SemaphoreWork& work, bool signal) {
  return work.signal == signal ? CUDA_SUCCESS : wrong_type();
}

}  // namespace

CUresult CUDAAPI cuStreamBatchMemOp(CUstream handle, unsigned int count, CUstreamBatchMemOpParams* operations,
                                    unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock& lock) -> CUresult {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ValueWork work;
    if (const CUresult result = make_value_work(s, count, operations, flags, work); result != CUDA_SUCCESS)
      return result;
    return submit(s, lock, stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, {take_label(), std::move(work)});
  });
}

CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return with_node<ValueWork>(handle, [&](State&, GraphNode&, ValueWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {.ctx = current_context,
            .count = static_cast<unsigned>(work.operations.size()),
            .paramArray = work.operations.data(),
            .flags = 0};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  return change_exec_node<ValueWork>(handle, node, [&](State& s, ValueWork& next, const ExecNode&) -> CUresult {
    if (params == nullptr || !s.is_retained(params->ctx)) return CUDA_ERROR_INVALID_VALUE;
    ValueWork changed;
    if (const CUresult result = make_value_work(s, params->count, params->paramArray, params->flags, changed);
        result != CUDA_SUCCESS)
      return result;
    if (!may_become(next, changed))
      return refuse(CUDA_ERROR_INVALID_VALUE, "the number and types of a node's operations may not change");
    next = std::move(changed);
    return CUDA_SUCCESS;
  });
}

// A semaphore of this driver's own, whatever the file descriptor names.
CUresult CUDAAPI cuImportExternalSemaphore(CUexternalSemaphore* out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* from) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    if (out == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (from->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD &&
        from->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "external semaphores on the CPU driver are file descriptors");
    const auto semaphore = std::make_shared<Semaphore>();
    semaphore->counts = from->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    *out = semaphore->handle = s.semaphores.add(semaphore);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  return enter_release(
      [&](State& s, Lock&) { return s.semaphores.take(handle) != nullptr ? CUDA_SUCCESS : no_semaphore(); });
}

CUresult CUDAAPI cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                                 const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params,
                                                 unsigned int count, CUstream stream) {
  return submit_semaphores(handles, params, count, stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL);
}

CUresult CUDAAPI cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                               const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                                               CUstream stream) {
  return submit_semaphores(handles, params, count, stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
}

CUresult CUDAAPI cuGraphExternalSemaphoresSignalNodeGetParams(CUgraphNode handle,
                                                              CUDA_EXT_SEM_SIGNAL_NODE_PARAMS* out) {
  return with_node<SemaphoreWork>(handle, [&](State&, GraphNode&, SemaphoreWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {work.handles.data(), work.signals.data(), static_cast<unsigned>(work.handles.size())};
    return same_direction(work, true);
  });
}

CUresult CUDAAPI cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode handle, CUDA_EXT_SEM_WAIT_NODE_PARAMS* out) {
  return with_node<SemaphoreWork>(handle, [&](State&, GraphNode&, SemaphoreWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {work.handles.data(), work.waits.data(), static_cast<unsigned>(work.handles.size())};
    return same_direction(work, false);
  });
}
