// The dialect the kernels are written in: one spelling, two compilers. NVRTC sees CUDA; the host compiler sees the CPU
// driver's emulation (runtime/cpu_driver/emulation.h) under the same names. A .cu file includes this first, holds
// exactly one kernel, and that kernel is named as the file.
//
//   NODEWRIGHT_KERNEL(rms_norm, RmsNorm, kThreads) {            // args: const RmsNorm&
//     float* scratch = reinterpret_cast<float*>(shared_memory());  // shared_bytes of the launch, 128-byte aligned
//     ... load_frozen(args.gain.data + i) ...
//     wait_for_inputs();
//   }
#pragma once

#include "kernels_src/args.h"

#ifdef __CUDACC_RTC__

// At most 128 registers a thread, so that an SM holds 512 threads and the next kernel's blocks can come in early.
#define NODEWRIGHT_KERNEL(name, Args, threads)                                                  \
  extern "C" __global__ void __launch_bounds__(threads, (threads) >= 512 ? 1 : 512 / (threads)) \
      name(const __grid_constant__ ::nodewright::Args args)
#define NODEWRIGHT_DEVICE __device__ __forceinline__
#define NODEWRIGHT_UNROLL _Pragma("unroll")
#define INFINITY __int_as_float(0x7f800000)

// cuda_device_runtime_api.h. Stays undefined in the cubin; the driver resolves it when it loads the cubin.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

namespace nodewright {

// Blocks until every prerequisite grid has completed and its writes are visible (PTX ISA, griddepcontrol).
// Every kernel calls it on every path, before any early return.
NODEWRIGHT_DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Permits dependents to be scheduled; publishes nothing.
NODEWRIGHT_DEVICE void release_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

NODEWRIGHT_DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char nodewright_shared[];
  return nodewright_shared;
}

// 16 bytes of memory that nothing writes after load: non-coherent, streamed past L1. No L2 prefetch hint: on one H200
// (2026-11-20, 4 GiB read) L2::256B costs 9 % of the bandwidth (4.25 against 4.65 TB/s), L2::128B changes nothing.
NODEWRIGHT_DEVICE uint4 load_frozen_16(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Sets what the conditional node of `condition` obeys when it runs. One thread of a launch calls it: calls that may run
// at the same time are undefined (cuda_device_runtime_api.h).
NODEWRIGHT_DEVICE void set_condition(const Condition& condition, unsigned value) {
  if (condition.handle != 0)
    cudaGraphSetConditional(condition.handle, value);
  else
    *condition.slot = value;
}

NODEWRIGHT_DEVICE float warp_sum(float v) {
  NODEWRIGHT_UNROLL
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

NODEWRIGHT_DEVICE float warp_max(float v) {
  NODEWRIGHT_UNROLL
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

}  // namespace nodewright

#else
#include "runtime/cpu_driver/emulation.h"
#endif

namespace nodewright {

// Sums `N` values at once over the warp; every lane gets the sums. On the CPU driver this is one collective, not 5 N.
template <int N>
NODEWRIGHT_DEVICE void warp_sums(float (&v)[N]) {
#ifdef __CUDACC_RTC__
  NODEWRIGHT_UNROLL
  for (int i = 0; i < N; ++i) v[i] = warp_sum(v[i]);
#else
  emulation::warp_sums(v, N);
#endif
}

// Sums `N` values at once over each aligned group of `Lanes` lanes (a power of two); every lane gets its group's sums.
template <int Lanes, int N>
NODEWRIGHT_DEVICE void group_sums(float (&v)[N]) {
#ifdef __CUDACC_RTC__
  NODEWRIGHT_UNROLL
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    NODEWRIGHT_UNROLL
    for (int i = 0; i < N; ++i) v[i] += __shfl_xor_sync(0xffffffffu, v[i], offset);
  }
#else
  emulation::group_sums(v, N, Lanes);
#endif
}

// Memory that other blocks of this launch have written before a fence and an arrival: read past L1.
NODEWRIGHT_DEVICE float load_shared_by_grid(const float* address) {
#ifdef __CUDACC_RTC__
  return __ldcg(address);
#else
  return *address;
#endif
}

// Sum (or maximum) over the block; every thread gets it. `scratch`: 32 floats of shared memory, free again on return.
NODEWRIGHT_DEVICE float block_sum(float v, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  v = warp_sum(v);
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < warps; ++w) total += scratch[w];
  __syncthreads();
  return total;
}

NODEWRIGHT_DEVICE float block_max(float v, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  v = warp_max(v);
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  float top = scratch[0];
  for (int w = 1; w < warps; ++w) top = fmaxf(top, scratch[w]);
  __syncthreads();
  return top;
}

}  // namespace nodewright

using namespace nodewright;  // this header is included by kernel sources only
