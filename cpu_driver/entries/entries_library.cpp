// Entry points: libraries, kernels, functions, launches.
#include <cstddef>
#include <cstring>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/capture.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

std::shared_ptr<LoadedImage> find_kernel(State& s, CUkernel handle) { return s.kernels.find(handle); }

std::shared_ptr<LoadedImage> find_function(State& s, CUfunction handle) {
  auto found = s.functions.find(handle);
  return found != nullptr ? found : s.kernels.find(reinterpret_cast<CUkernel>(handle));
}

CUresult no_kernel() {
  return refuse(CUDA_ERROR_INVALID_HANDLE, "no such kernel: never loaded, or its library was unloaded");
}

CUresult get_attribute(const State& s, const std::shared_ptr<LoadedImage>& loaded, CUfunction_attribute attribute,
                       int* value) {
  if (loaded == nullptr) return no_kernel();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(loaded->image->max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(loaded->max_dynamic_shared);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = s.options.compute_capability;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = loaded->large_clusters ? 1 : 0;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = 0;
      break;
    default:
      return refuse(CUDA_ERROR_INVALID_VALUE, "function attribute " + std::to_string(attribute) + " is not known");
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(State& s, const std::shared_ptr<LoadedImage>& loaded, CUfunction_attribute attribute,
                       int value) {
  if (loaded == nullptr) return no_kernel();
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
    return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // a hint
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    if (value != 0 && value != 1) return CUDA_ERROR_INVALID_VALUE;
    loaded->large_clusters = value == 1;
    return CUDA_SUCCESS;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    return refuse(CUDA_ERROR_INVALID_VALUE, "function attribute " + std::to_string(attribute) + " cannot be set");
  if (value < 0 || static_cast<uint32_t>(value) > shared_limit_bytes(s))
    return refuse(CUDA_ERROR_INVALID_VALUE, std::to_string(value) + " bytes of dynamic shared memory, the device has " +
                                                std::to_string(shared_limit_bytes(s)) + " a block");
  loaded->max_dynamic_shared = static_cast<uint32_t>(value);
  return CUDA_SUCCESS;
}

CUresult get_parameter_count(const std::shared_ptr<LoadedImage>& loaded, size_t* count) {
  if (loaded == nullptr) return no_kernel();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = loaded->image->parameters.size();
  return CUDA_SUCCESS;
}

// Lasts as long as the library.
CUresult get_name(const std::shared_ptr<LoadedImage>& loaded, const char** name) {
  if (loaded == nullptr) return no_kernel();
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = loaded->image->name.c_str();
  return CUDA_SUCCESS;
}

CUresult get_parameter(const std::shared_ptr<LoadedImage>& loaded, size_t index, size_t* offset, size_t* bytes) {
  if (loaded == nullptr) return no_kernel();
  const auto& parameters = loaded->image->parameters;
  if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset;
  if (bytes != nullptr) *bytes = parameters[index].bytes;
  return CUDA_SUCCESS;
}

// `programmatic`: the launch may begin before the kernel before it in the stream has ended.
CUresult read_attributes(const CUlaunchConfig& config, KernelAttributes& attributes, bool& programmatic) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
      continue;
    }
    if (const CUresult result = set_attribute(attributes, attribute.id, attribute.value); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*, void**, unsigned int jit_options,
                                   CUlibraryOption*, void**, unsigned int) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (out == nullptr || code == nullptr || jit_options != 0) return CUDA_ERROR_INVALID_VALUE;
    auto image = KernelImage::load(code);
    if (image == nullptr)
      return refuse(CUDA_ERROR_INVALID_IMAGE, "not a kernel image of this CPU driver (made by compile_for_cpu)");
    auto loaded = std::make_shared<LoadedImage>();
    loaded->image = std::move(image);
    loaded->kernel = s.kernels.add(loaded);
    loaded->function = s.functions.add(loaded);
    auto library = std::make_shared<Library>();
    library->loaded = std::move(loaded);
    *out = s.libraries.add(std::move(library));
    return CUDA_SUCCESS;
  });
}

// The code goes when the last queued launch that uses it has ended.
CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
  return enter_release([&](State& s, Lock&) {
    const auto library = s.libraries.take(handle);
    if (library == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such library");
    s.kernels.take(library->loaded->kernel);
    s.functions.take(library->loaded->function);
    library->loaded->unloaded = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto library = s.libraries.find(handle);
    if (library == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such library");
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (library->loaded->image->name != name)
      return refuse(CUDA_ERROR_NOT_FOUND, "the library holds kernel " + library->loaded->image->name);
    *out = library->loaded->kernel;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto loaded = find_kernel(s, handle);
    if (loaded == nullptr) return no_kernel();
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = loaded->function;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel handle) {
  return enter(Needs::context, [&](State& s, Lock&) { return get_name(find_kernel(s, handle), name); });
}
CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction handle) {
  return enter(Needs::context, [&](State& s, Lock&) { return get_name(find_function(s, handle), name); });
}

CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return get_attribute(s, find_kernel(s, handle), attribute, value); });
}
CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return set_attribute(s, find_kernel(s, handle), attribute, value); });
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return get_attribute(s, find_function(s, handle), attribute, value); });
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return set_attribute(s, find_function(s, handle), attribute, value); });
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* bytes) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return get_parameter(find_kernel(s, handle), index, offset, bytes); });
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return enter(Needs::context,
               [&](State& s, Lock&) { return get_parameter(find_function(s, handle), index, offset, bytes); });
}

extern "C" CUresult CUDAAPI cuFuncGetParamCount(CUfunction handle, size_t* count) {
  return enter(Needs::context, [&](State& s, Lock&) { return get_parameter_count(find_function(s, handle), count); });
}

extern "C" CUresult CUDAAPI cuKernelGetParamCount(CUkernel handle, size_t* count) {
  return enter(Needs::context, [&](State& s, Lock&) { return get_parameter_count(s.kernels.find(handle), count); });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                             size_t shared_bytes) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto loaded = find_function(s, handle);
    if (loaded == nullptr) return no_kernel();
    if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    *blocks = blocks_per_multiprocessor(s, *loaded, static_cast<uint64_t>(threads), shared_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return enter(Needs::context, [&](State& s, Lock&) {
    KernelWork work;
    work.loaded = find_function(s, handle);
    if (work.loaded == nullptr) return no_kernel();
    if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    work.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
    work.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
    work.shared_bytes = config->sharedMemBytes;
    bool programmatic = false;
    CUresult result = read_attributes(*config, work.attributes, programmatic);
    if (result == CUDA_SUCCESS) result = check_attributes(s, work);
    if (result == CUDA_SUCCESS) *clusters = static_cast<int>(resident_clusters(s, work));
    return result;
  });
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::string label = take_label();
    const auto stream = s.find_stream(config->hStream);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    KernelWork work;
    bool programmatic = false;
    if (const CUresult result = read_attributes(*config, work.attributes, programmatic); result != CUDA_SUCCESS)
      return result;
    if (work.attributes.device_node != nullptr && stream->capture == nullptr)
      return refuse(CUDA_ERROR_INVALID_VALUE, "only a kernel of a graph can be one that the device may update");
    const CUDA_KERNEL_NODE_PARAMS launch{function,
                                         config->gridDimX,
                                         config->gridDimY,
                                         config->gridDimZ,
                                         config->blockDimX,
                                         config->blockDimY,
                                         config->blockDimZ,
                                         config->sharedMemBytes,
                                         params,
                                         extra,
                                         nullptr,
                                         nullptr};
    if (const CUresult result = make_kernel_work(s, launch, work); result != CUDA_SUCCESS) return result;
    if (stream->capture != nullptr)
      return capture_work(s, *stream, CU_GRAPH_NODE_TYPE_KERNEL, {label, std::move(work)}, programmatic);
    Operation operation;
    operation.work = {label, std::move(work)};
    s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}
