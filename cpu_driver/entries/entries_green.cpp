// Entry points: green contexts. Only kernel nodes of graphs run in them.
#include "cpu_driver/driver_state.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

// Multiprocessors come in pairs, so that the few of this driver's devices can be split: NVIDIA's driver gives 8 at a
// time on Hopper (cuDevSmResourceSplitByCount in cuda.h).
constexpr unsigned kGroup = 2;

// A descriptor is a number in place of a handle: nothing destroys one.
constexpr uint64_t kDescriptors = 17ull << 40;

CUdevResource multiprocessors(unsigned count) {
  CUdevResource result{};
  result.type = CU_DEV_RESOURCE_TYPE_SM;
  result.sm.smCount = count;
  return result;
}

CUresult give(CUdevResourceType type, unsigned count, CUdevResource* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM)
    return refuse(CUDA_ERROR_INVALID_RESOURCE_TYPE, "resources other than multiprocessors on the CPU driver");
  *out = multiprocessors(count);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuDeviceGetDevResource(CUdevice device, CUdevResource* out, CUdevResourceType type) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    if (device < 0 || device >= s.options.devices) return CUDA_ERROR_INVALID_DEVICE;
    return give(type, static_cast<unsigned>(s.options.sm_count), out);
  });
}

CUresult CUDAAPI cuCtxGetDevResource(CUcontext context, CUdevResource* out, CUdevResourceType type) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto green = s.contexts_of_green.find(context);
    if (green == nullptr && !s.is_retained(context)) return refuse(CUDA_ERROR_INVALID_CONTEXT, "no such context");
    return give(type, green != nullptr ? green->multiprocessors : static_cast<unsigned>(s.options.sm_count), out);
  });
}

CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups, const CUdevResource* input,
                                             CUdevResource* remaining, unsigned int flags, unsigned int least) {
  return enter(Needs::initialised, [&](State&, Lock&) {
    if (groups == nullptr || input == nullptr || input->type != CU_DEV_RESOURCE_TYPE_SM || flags != 0 ||
        (result != nullptr && *groups == 0))
      return CUDA_ERROR_INVALID_VALUE;
    const uint64_t each = std::max((uint64_t{least} + kGroup - 1) / kGroup * kGroup, uint64_t{kGroup});
    const auto possible = static_cast<unsigned>(input->sm.smCount / each);
    *groups = result == nullptr ? possible : std::min(*groups, possible);
    if (*groups == 0)
      return refuse(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                    std::to_string(each) + " multiprocessors of " + std::to_string(input->sm.smCount));
    for (unsigned i = 0; result != nullptr && i < *groups; ++i)
      result[i] = multiprocessors(static_cast<unsigned>(each));
    if (remaining == nullptr) return CUDA_SUCCESS;
    *remaining = multiprocessors(input->sm.smCount - *groups * static_cast<unsigned>(each));
    if (remaining->sm.smCount == 0) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources, unsigned int count) {
  return enter(Needs::initialised, [&](State&, Lock&) {
    if (out == nullptr || resources == nullptr || count != 1) return CUDA_ERROR_INVALID_VALUE;
    if (resources->type != CU_DEV_RESOURCE_TYPE_SM)
      return refuse(CUDA_ERROR_INVALID_RESOURCE_TYPE, "the resource is not valid");
    *out = reinterpret_cast<CUdevResourceDesc>(kDescriptors | resources->sm.smCount);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc descriptor, CUdevice device, unsigned int flags) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto count = reinterpret_cast<uint64_t>(descriptor) - kDescriptors;
    if (out == nullptr || count == 0 || count > static_cast<uint64_t>(s.options.sm_count))
      return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= s.options.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM)
      return refuse(CUDA_ERROR_INVALID_VALUE, "CU_GREEN_CTX_DEFAULT_STREAM is required");
    const auto green = std::make_shared<GreenContext>();
    green->device = device;
    green->multiprocessors = static_cast<unsigned>(count);
    green->context = s.contexts_of_green.add(green);
    *out = s.green_contexts.add(green);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx handle) {
  return enter_release([&](State& s, Lock&) {
    const auto green = s.green_contexts.take(handle);
    if (green == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such green context");
    s.contexts_of_green.take(green->context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  return enter(Needs::initialised, [&](State& s, Lock&) {
    const auto green = s.green_contexts.find(handle);
    if (green == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such green context");
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = green->context;
    return CUDA_SUCCESS;
  });
}
