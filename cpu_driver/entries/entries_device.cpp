// Entry points: loader queries, the devices, their primary contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "cpu_driver/blocks/block_runner.h"
#include "cpu_driver/blocks/fault_handler.h"
#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/capture.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

struct ResultText {
  CUresult result;
  const char *name, *text;
};

#define NODEWRIGHT_RESULT(name, text) \
  { name, #name, text }

constexpr ResultText kResults[] = {
    NODEWRIGHT_RESULT(CUDA_SUCCESS, "no error"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    NODEWRIGHT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    NODEWRIGHT_RESULT(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    NODEWRIGHT_RESULT(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    NODEWRIGHT_RESULT(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    NODEWRIGHT_RESULT(CUDA_ERROR_LOSSY_QUERY, "the query would drop information"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NOT_READY, "device not ready"),
    NODEWRIGHT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    NODEWRIGHT_RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    NODEWRIGHT_RESULT(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    NODEWRIGHT_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    NODEWRIGHT_RESULT(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    NODEWRIGHT_RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    NODEWRIGHT_RESULT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    NODEWRIGHT_RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    NODEWRIGHT_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    NODEWRIGHT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    NODEWRIGHT_RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    NODEWRIGHT_RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    NODEWRIGHT_RESULT(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                      "operation would result in a merge of separate capture sequences"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                      "operation would make the legacy stream depend on a capturing blocking stream"),
    NODEWRIGHT_RESULT(CUDA_ERROR_CAPTURED_EVENT,
                      "operation not permitted on an event last recorded in a capturing stream"),
    NODEWRIGHT_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                      "attempt to terminate a thread-local capture sequence from another thread"),
    NODEWRIGHT_RESULT(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    NODEWRIGHT_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                      "the graph update was not performed because it included changes which violated constraints"),
    NODEWRIGHT_RESULT(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster misconfiguration"),
    NODEWRIGHT_RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
};

#undef NODEWRIGHT_RESULT

CUresult result_text(CUresult error, const char** out, const char* ResultText::*member) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* found =
      std::find_if(std::begin(kResults), std::end(kResults), [&](auto& r) { return r.result == error; });
  *out = found != std::end(kResults) ? found->*member : nullptr;
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_device(const State& state, CUdevice device) {
  if (device >= 0 && device < state.options.devices) return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_DEVICE,
                "the CPU driver has " + std::to_string(state.options.devices) + " devices, number 0 and on");
}

int shared_optin_bytes(const State& state) { return static_cast<int>(shared_limit_bytes(state)); }

// CUDA_ERROR_INVALID_VALUE for what the CPU driver does not know: an answer of 0 would look like knowledge.
CUresult device_attribute(const State& state, CUdevice_attribute attribute, int& value) {
  const CpuDriverOptions& options = state.options;
  const std::pair<CUdevice_attribute, int> known[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kMaxBlockThreads},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kDefaultDynamicShared},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared_optin_bytes(state)},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, shared_optin_bytes(state) + 1024},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, kWarpLanes},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, options.sm_count},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, options.compute_capability / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, options.compute_capability % 10},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},         // kHz; no meaning here
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},  // kHz; no meaning here
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
      {CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, options.launch_timeout_ms > 0 ? 1 : 0},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, options.compute_capability >= 90 ? 1 : 0},
      {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, memory_domains(state)},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
      {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
  };
  const auto* found = std::ranges::find(known, attribute, &std::pair<CUdevice_attribute, int>::first);
  if (found == std::end(known))
    return refuse(CUDA_ERROR_INVALID_VALUE, "device attribute " + std::to_string(attribute) + " is not known");
  value = found->second;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuInit(unsigned int flags) {
  return enter(Needs::nothing, [&](State& s, Lock&) {
    if (flags != 0) return refuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
    install_fault_handlers();
    s.initialised = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** out) { return result_text(error, out, &ResultText::name); }
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** out) {
  return result_text(error, out, &ResultText::text);
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = s.options.devices;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return check_device(s, ordinal);
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, static_cast<size_t>(length), "Nodewright CPU driver (as sm_%d)", s.options.compute_capability);
    return check_device(s, device);
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_device(s, device);
    return result != CUDA_SUCCESS ? result : device_attribute(s, attribute, *value);
  });
}

CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = s.options.memory_bytes;
    return check_device(s, device);
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_device(s, device); result != CUDA_SUCCESS) return result;
    if (s.memory == nullptr) s.memory = std::make_unique<DeviceMemory>(s.options.memory_bytes);
    if (s.null_stream == nullptr) s.null_stream = std::make_shared<Stream>();
    if (s.executor == nullptr) s.executor = std::make_unique<Executor>(s);
    ++s.retained[static_cast<size_t>(device)];
    *context = primary_context(device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return enter_release([&](State& s, Lock& lock) {
    if (const CUresult result = check_device(s, device); result != CUDA_SUCCESS) return result;
    int& retained = s.retained[static_cast<size_t>(device)];
    if (retained == 0) return refuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    if (retained == 1) s.executor->wait_for_all(lock);
    if (--retained == 0) s.forget_peers(device);
    if (!s.any_retained()) {
      s.sticky = CUDA_SUCCESS;
      s.report.clear();
      s.registered.clear();
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (context != nullptr && !s.is_retained(context))
      return refuse(CUDA_ERROR_INVALID_CONTEXT, "no primary context, or released");
    current_context = context;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  return enter(Needs::initialised, [&](State&, Lock&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = current_context;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return enter(Needs::context, [&](State&, Lock&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = device_of(current_context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const CUresult result = forbid_during_capture(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuCtxSynchronize");
    return result != CUDA_SUCCESS ? result : s.executor->wait_for_all(lock);
  });
}

// As many as devices of compute capability 8.0 and 9.0 have. They are kept and change nothing here.
CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return enter(Needs::context, [&](State&, Lock&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  return enter(Needs::initialised, [&](State& s, Lock&) { return check_device(s, device); });
}

// Memory of graphs' allocation nodes has no account beside cuMemGetInfo: no byte is held back.
CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (value == nullptr || attribute < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
        attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
      return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = 0;
    return check_device(s, device);
  });
}
