// Entry points: memory in the order of a stream, and the nodes that allocate and free.
#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/graph_memory.h"
#include "cpu_driver/graphs/node_lookup.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) -> CUresult {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Work work{take_label(), AllocateWork{}};
    auto& allocate = std::get<AllocateWork>(work.what);
    const Graph* graph = stream->capture != nullptr ? stream->capture->graph.get() : nullptr;
    if (const CUresult result = reserve_memory(s, graph, bytes, device_of(current_context), allocate);
        result != CUDA_SUCCESS)
      return result;
    *address = allocate.address;
    if (graph != nullptr) return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, std::move(work));
    Operation operation;
    operation.work = std::move(work);
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) -> CUresult {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Work work{take_label(), FreeWork{.address = address}};
    if (stream->capture != nullptr) {
      auto& memory = std::get<FreeWork>(work.what).memory;
      memory = memory_at(*stream->capture->graph, address);
      if (memory == nullptr) {
        stream->capture->invalid = true;
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "the captured graph does not allocate this memory: " + s.memory->describe(address));
      }
      return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_MEM_FREE, std::move(work));
    }
    DeviceMemory::Block* block = s.memory->starting_at(address);
    if (block == nullptr || block->kind != DeviceMemory::Kind::device)
      return refuse(CUDA_ERROR_INVALID_VALUE, "no allocation begins there: " + s.memory->describe(address));
    if (const CUresult result = check_free_outside(s, address); result != CUDA_SUCCESS) return result;
    block->outstanding = false;
    Operation operation;
    operation.work = std::move(work);
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return with_node<AllocateWork>(handle, [&](State&, GraphNode&, const AllocateWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = work.device};
    out->bytesize = work.bytes;
    out->dptr = work.address;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* out) {
  return with_node<FreeWork>(handle, [&](State&, GraphNode&, const FreeWork& work) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = work.address;
    return CUDA_SUCCESS;
  });
}
