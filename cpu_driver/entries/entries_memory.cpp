// Entry points: allocation, copies, fills.
#include <cstring>
#include <iterator>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/graph_memory.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Reads a pageable source while the caller still waits, row by row into one block.
void stage(CopyWork& work) {
  const CUDA_MEMCPY3D& copy = work.copy;
  const CopyEnds ends = copy_ends(copy);
  work.staged.resize(copy.WidthInBytes * copy.Height * copy.Depth);
  std::byte* to = work.staged.data();
  for (size_t z = 0; z < copy.Depth; ++z)
    for (size_t y = 0; y < copy.Height; ++y, to += copy.WidthInBytes)
      memcpy(to, ends.from + z * ends.from_slice + y * ends.from_pitch, copy.WidthInBytes);
  CUDA_MEMCPY3D& c = work.copy;
  c.srcXInBytes = c.srcY = c.srcZ = c.srcPitch = c.srcHeight = 0;
}

CUresult queue_copy(State& s, Lock& lock, CUstream handle, const CUDA_MEMCPY3D& copy) {
  const auto stream = s.find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_copy(s, copy); result != CUDA_SUCCESS) return result;
  CopyWork work{.copy = copy, .poison = s.options.poison};
  if (stream->capture != nullptr) {
    work.poison = false;
    return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_MEMCPY, {take_label(), std::move(work)});
  }
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  if (s.is_pageable(copy.srcMemoryType, copy.srcHost)) stage(work);
  const bool to_pageable = s.is_pageable(copy.dstMemoryType, copy.dstHost);
  Operation operation;
  operation.work = {take_label(), std::move(work)};
  const CompletionRef done = s.executor->enqueue(lock, stream, std::move(operation));
  return to_pageable ? s.executor->wait_for(lock, done) : s.sticky;
}

// Synchronous copies go through the legacy default stream: they wait for blocking streams, not for the others.
CUresult copy_now(const char* call, const CUDA_MEMCPY3D& copy) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    if (const CUresult result = forbid_during_capture(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call);
        result != CUDA_SUCCESS)
      return result;
    if (const CUresult result = check_copy(s, copy); result != CUDA_SUCCESS) return result;
    if (copy.WidthInBytes == 0) return CUDA_SUCCESS;
    Operation operation;
    operation.work = {call, CopyWork{.copy = copy}};
    return s.executor->wait_for(lock, s.executor->enqueue(lock, s.null_stream, std::move(operation)));
  });
}

CUresult copy_later(CUstream stream, const CUDA_MEMCPY3D& copy) {
  return enter(Needs::context, [&](State& s, Lock& lock) { return queue_copy(s, lock, stream, copy); });
}

CUresult fill_later(CUstream handle, const CUDA_MEMSET_NODE_PARAMS& fill) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto stream = s.find_stream(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult result = check_fill(s, fill); result != CUDA_SUCCESS) return result;
    if (stream->capture != nullptr)
      return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_MEMSET, {take_label(), FillWork{fill}});
    Operation operation;
    operation.work = {take_label(), FillWork{fill}};
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

CUDA_MEMSET_NODE_PARAMS linear_fill(CUdeviceptr to, unsigned value, unsigned element_bytes, size_t count) {
  return {.dst = to, .pitch = 0, .value = value, .elementSize = element_bytes, .width = count, .height = 1};
}

constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST, kDevice = CU_MEMORYTYPE_DEVICE;

CUresult allocate(State& s, uint64_t bytes, DeviceMemory::Kind kind, uint64_t& address) {
  if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  const int device = device_of(current_context);
  const auto found = s.memory->allocate(bytes, kind, device);
  if (!found)
    return refuse(CUDA_ERROR_OUT_OF_MEMORY, "asked for " + std::to_string(bytes) + " bytes, " +
                                                std::to_string(s.memory->capacity() - s.memory->used(device)) + " of " +
                                                std::to_string(s.memory->capacity()) + " are free");
  address = *found;
  return CUDA_SUCCESS;
}

CUresult release(State& s, Lock& lock, uint64_t address, DeviceMemory::Kind kind) {
  if (address == 0) return CUDA_SUCCESS;
  if (s.memory == nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, "no memory was ever allocated");
  if (s.executor != nullptr) s.executor->wait_for_all(lock);  // CUDA's frees wait for the device as well
  if (const CUresult result = check_free_outside(s, address); result != CUDA_SUCCESS) return result;
  if (DeviceMemory::Block* block = s.memory->starting_at(address); block != nullptr) block->outstanding = false;
  if (!s.memory->release(address, kind))
    return refuse(CUDA_ERROR_INVALID_VALUE, "no allocation begins there: " + s.memory->describe(address));
  return CUDA_SUCCESS;
}

// The allocation, or the registered host memory, that holds an address; no type where there is none.
struct KnownMemory {
  unsigned int type = 0;           // CUmemorytype
  int device = CU_DEVICE_INVALID;  // of the context in which it was allocated
  uint64_t begin = 0, bytes = 0;
};

KnownMemory known_memory(const State& s, uint64_t address) {
  if (s.memory == nullptr) return {};
  if (const DeviceMemory::Block* block = s.memory->find_reserved(address, 1))
    return {block->kind == DeviceMemory::Kind::pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, block->device,
            block->address, block->bytes};
  const auto after = s.registered.upper_bound(address);
  if (after == s.registered.begin() || std::prev(after)->second <= address) return {};
  const auto& [begin, end] = *std::prev(after);
  return {CU_MEMORYTYPE_HOST, 0, begin, end - begin};
}

// False: the attribute is none of those that this driver tells.
bool tell_attribute(const KnownMemory& memory, CUpointer_attribute attribute, void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = memory.type == 0 ? nullptr : primary_context(memory.device);
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(value) = memory.type;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = memory.device;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = memory.begin;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(value) = memory.bytes;
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult CUDAAPI cuMemGetInfo(size_t* free, size_t* total) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free = s.memory->capacity() - s.memory->used(device_of(current_context));
    *total = s.memory->capacity();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = forbid_during_capture(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAlloc");
        result != CUDA_SUCCESS)
      return result;
    uint64_t found = 0;
    const CUresult result = allocate(s, bytes, DeviceMemory::Kind::device, found);
    *address = found;
    return result;
  });
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  return enter_release([&](State& s, Lock& lock) { return release(s, lock, address, DeviceMemory::Kind::device); });
}

CUresult CUDAAPI cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    if (pointer == nullptr || (flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t found = 0;
    const CUresult result = allocate(s, bytes, DeviceMemory::Kind::pinned, found);
    *pointer = reinterpret_cast<void*>(found);
    return result;
  });
}

CUresult CUDAAPI cuMemFreeHost(void* pointer) {
  return enter_release(
      [&](State& s, Lock& lock) { return release(s, lock, address_of(pointer), DeviceMemory::Kind::pinned); });
}

CUresult CUDAAPI cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    const uint64_t begin = address_of(pointer);
    if (pointer == nullptr || bytes == 0 || bytes > UINT64_MAX - begin || (flags & ~15u) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    const auto next = s.registered.lower_bound(begin + bytes);
    if (s.memory->contains(begin) || (next != s.registered.begin() && std::prev(next)->second > begin))
      return refuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "some of it is page-locked already");
    s.registered.emplace(begin, begin + bytes);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
  return enter_release([&](State& s, Lock& lock) -> CUresult {
    if (s.executor != nullptr) s.executor->wait_for_all(lock);
    if (s.registered.erase(address_of(pointer)) == 0)
      return refuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "no registered memory begins there");
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const DeviceMemory::Block* block = s.memory->find(address_of(pointer), 1);
    if (block == nullptr || block->kind != DeviceMemory::Kind::pinned)
      return refuse(CUDA_ERROR_INVALID_VALUE, "not pinned memory");
    *address = address_of(pointer);
    return CUDA_SUCCESS;
  });
}

// Attributes of an address that no memory known to the driver holds are zeros, and not an error.
CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                                        CUdeviceptr address) {
  return enter(Needs::initialised, [&](State& s, Lock&) -> CUresult {
    if (count == 0 || attributes == nullptr || values == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const KnownMemory memory = known_memory(s, address);
    for (unsigned int i = 0; i < count; ++i)
      if (!tell_attribute(memory, attributes[i], values[i]))
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "attribute " + std::to_string(attributes[i]) + " of an address is not known");
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD", linear_copy(kDevice, to, kHost, address_of(from), bytes));
}
CUresult CUDAAPI cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH", linear_copy(kHost, address_of(to), kDevice, from, bytes));
}
CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoD", linear_copy(kDevice, to, kDevice, from, bytes));
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_later(stream, linear_copy(kDevice, to, kHost, address_of(from), bytes));
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_later(stream, linear_copy(kHost, address_of(to), kDevice, from, bytes));
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_later(stream, linear_copy(kDevice, to, kDevice, from, bytes));
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* flat, CUstream stream) {
  if (flat == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = flat->srcXInBytes;
  copy.srcY = flat->srcY;
  copy.srcMemoryType = flat->srcMemoryType;
  copy.srcHost = flat->srcHost;
  copy.srcDevice = flat->srcDevice;
  copy.srcPitch = flat->srcPitch;
  copy.dstXInBytes = flat->dstXInBytes;
  copy.dstY = flat->dstY;
  copy.dstMemoryType = flat->dstMemoryType;
  copy.dstHost = flat->dstHost;
  copy.dstDevice = flat->dstDevice;
  copy.dstPitch = flat->dstPitch;
  copy.WidthInBytes = flat->WidthInBytes;
  copy.Height = flat->Height;
  copy.Depth = 1;
  return copy_later(stream, copy);
}

CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return copy == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_later(stream, *copy);
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    if (const CUresult result = forbid_during_capture(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemsetD8");
        result != CUDA_SUCCESS)
      return result;
    const CUDA_MEMSET_NODE_PARAMS fill = linear_fill(to, value, 1, count);
    if (const CUresult result = check_fill(s, fill); result != CUDA_SUCCESS) return result;
    Operation operation;
    operation.work = {"cuMemsetD8", FillWork{fill}};
    return s.executor->wait_for(lock, s.executor->enqueue(lock, s.null_stream, std::move(operation)));
  });
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill_later(stream, linear_fill(to, value, 1, count));
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill_later(stream, linear_fill(to, value, 2, count));
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return fill_later(stream, linear_fill(to, value, 4, count));
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                                   CUstream stream) {
  return fill_later(stream, {to, pitch, value, 1, width, height});
}
CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                                    CUstream stream) {
  return fill_later(stream, {to, pitch, value, 2, width, height});
}
CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                                    CUstream stream) {
  return fill_later(stream, {to, pitch, value, 4, width, height});
}
