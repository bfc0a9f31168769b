// The kernel behind a __global__ symbol of a program that nvcc has built. For files that nvcc compiles, or that include
// the CUDA runtime's headers and link its library themselves: Nodewright does not.
//
//   __global__ void scale(float* x, float factor);
//   const ForeignKernel kernel = kernel_of_symbol(device, scale, "scale", scale_on_host);
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/error.h"
#include "runtime/kernels/foreign_kernel.h"

namespace nodewright {

// The kernel still belongs to the program. The stand-in has the symbol's parameters. Throws Error with what the CUDA
// runtime said.
template <class... P>
ForeignKernel kernel_of_symbol(Device& device, void (*symbol)(P...), std::string name,
                               const std::type_identity_t<std::function<void(P...)>>& stand_in = {}) {
  const HostStandIn held = stand_in ? HostStandIn(stand_in) : HostStandIn();
  cudaKernel_t kernel = nullptr;
  if (!device.driver().is_cpu()) {
    const cudaError_t result = cudaGetKernel(&kernel, reinterpret_cast<const void*>(symbol));
    if (result != cudaSuccess)
      throw Error(
          {.doing = "find the kernel of a symbol",
           .object = name,
           .driver = std::string("cudaGetKernel: ") + cudaGetErrorName(result) + ", " + cudaGetErrorString(result),
           .advice = "build its file with nvcc for this device, and link the CUDA runtime once"});
  }
  return borrow_kernel(device, static_cast<CUkernel>(kernel), std::move(name), held);
}

}  // namespace nodewright
