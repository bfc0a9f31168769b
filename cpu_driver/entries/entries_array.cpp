// Entry points: CUDA arrays of plain elements. Memory for copies alone: kernels of the CPU driver have no textures.
#include "cpu_driver/driver_state.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

size_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const size_t bytes = channel_bytes(descriptor.Format);
    const unsigned channels = descriptor.NumChannels;
    if (bytes == 0 || (channels != 1 && channels != 2 && channels != 4))
      return refuse(CUDA_ERROR_INVALID_VALUE, "an array has 1, 2 or 4 channels of 8, 16 or 32 bits each");
    const bool layered = (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if (descriptor.Width == 0 || (descriptor.Height == 0 && descriptor.Depth != 0 && !layered))
      return refuse(CUDA_ERROR_INVALID_VALUE, "an array has a width, and where it has a depth, a height");
    const auto array = std::make_shared<Array>(Array{.descriptor = descriptor, .element_bytes = bytes * channels});
    const uint64_t all = array->row_bytes() * array->rows() * array->slices();
    const auto address = s.memory->allocate(all, DeviceMemory::Kind::device, device_of(current_context));
    if (!address) return refuse(CUDA_ERROR_OUT_OF_MEMORY, "asked for an array of " + std::to_string(all) + " bytes");
    array->address = *address;
    *out = s.arrays.add(array);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult CUDAAPI cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {.Width = descriptor->Width,
                      .Height = descriptor->Height,
                      .Depth = 0,
                      .Format = descriptor->Format,
                      .NumChannels = descriptor->NumChannels,
                      .Flags = 0});
}

CUresult CUDAAPI cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return descriptor == nullptr ? CUDA_ERROR_INVALID_VALUE : create(out, *descriptor);
}

CUresult CUDAAPI cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto array = s.arrays.find(handle);
    if (array == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such array: never made, or destroyed");
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = array->descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle) {
  return enter_release([&](State& s, Lock& lock) {
    if (s.executor != nullptr) s.executor->wait_for_all(lock);  // as frees do
    const auto array = s.arrays.take(handle);
    if (array == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such array: never made, or destroyed");
    if (s.memory != nullptr) s.memory->release(array->address, DeviceMemory::Kind::device);
    return CUDA_SUCCESS;
  });
}
