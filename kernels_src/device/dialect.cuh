// The macros and device functions that kernels are written with, so that two compilers accept the same source: NVRTC
// gets CUDA here, and the host's C++ compiler gets the CPU driver's emulation of it (cpu_driver/emulation.h). A .cu
// file defines one kernel, which has the name of the file, and includes this header before any other device code.
//
//   NODEWRIGHT_KERNEL(rms_norm, RmsNorm, kThreads) {            // args: const RmsNorm&
//     float* scratch = reinterpret_cast<float*>(shared_memory());  // shared_bytes of the launch, 128-byte aligned
//     ... load_frozen(args.gain.data + i) ...
//     wait_for_inputs();
//   }
//
// With NODEWRIGHT_TIMED defined (KernelRequest::timed) the same source compiles to the kernel's timed form: its
// argument is Timed<Args>, and each block writes the time at which it starts, has waited and ends.
#pragma once

#include "kernels_src/architecture.h"
#include "kernels_src/args.h"
#include "kernels_src/block_stamps.h"

#ifdef __CUDACC_RTC__

// The blocks of a kernel that an SM can hold at least: 512 threads of blocks of up to 256 threads (so that a thread has
// at most 128 registers, and the next kernel's blocks can start early), two blocks of up to 320 threads, one larger
// block. NODEWRIGHT_KERNEL_OF is given the number instead.
#define NODEWRIGHT_BOUNDS(threads) (threads) > 320 ? 1 : (threads) > 256 ? 2 : 512 / (threads)
#define NODEWRIGHT_KERNEL(name, Args, threads) NODEWRIGHT_KERNEL_OF(name, Args, threads, NODEWRIGHT_BOUNDS(threads))
// The body is a function of its own, so that every return in it leads to end_waited() in the kernel.
#ifdef NODEWRIGHT_TIMED
#define NODEWRIGHT_KERNEL_OF(name, Args, threads, blocks_of_an_sm)                  \
  NODEWRIGHT_DEVICE void name##_body(const ::nodewright::Args& args);               \
  extern "C" __global__ void __launch_bounds__(threads, blocks_of_an_sm)            \
      name(const __grid_constant__ ::nodewright::Timed<::nodewright::Args> timed) { \
    ::nodewright::start_unwaited();                                                 \
    ::nodewright::stamp_start(timed.stamps.data);                                   \
    name##_body(timed.args);                                                        \
    ::nodewright::end_waited();                                                     \
    ::nodewright::stamp_end(timed.stamps.data);                                     \
  }                                                                                 \
  NODEWRIGHT_DEVICE void name##_body(const ::nodewright::Args& args)
#else
#define NODEWRIGHT_KERNEL_OF(name, Args, threads, blocks_of_an_sm)       \
  NODEWRIGHT_DEVICE void name##_body(const ::nodewright::Args& args);    \
  extern "C" __global__ void __launch_bounds__(threads, blocks_of_an_sm) \
      name(const __grid_constant__ ::nodewright::Args args) {            \
    ::nodewright::start_unwaited();                                      \
    name##_body(args);                                                   \
    ::nodewright::end_waited();                                          \
  }                                                                      \
  NODEWRIGHT_DEVICE void name##_body(const ::nodewright::Args& args)
#endif
#define NODEWRIGHT_DEVICE __device__ __forceinline__
// A function that is never inlined: its code exists once.
#define NODEWRIGHT_CALLED __device__ __noinline__
#define NODEWRIGHT_UNROLL _Pragma("unroll")
// Unrolls a loop by a constant, or completely, on the device alone: the host's compiler would take ten times as long.
#define NODEWRIGHT_UNROLL_BY(count) NODEWRIGHT_PRAGMA(unroll(count))
#define NODEWRIGHT_PRAGMA(text) _Pragma(#text)
#define NODEWRIGHT_UNROLL_ON_DEVICE _Pragma("unroll")
// Keeps a loop rolled whose unrolled code would take longer to load than to run.
#define NODEWRIGHT_NO_UNROLL _Pragma("unroll 1")
#define INFINITY __int_as_float(0x7f800000)

// Declared as in cuda_device_runtime_api.h. It stays undefined in the cubin, and the driver resolves it on loading.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned int value);

namespace nodewright {

// Nanoseconds of a clock that all SMs share (PTX ISA, %globaltimer). The compiler does not move memory accesses past
// it.
NODEWRIGHT_DEVICE uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}

NODEWRIGHT_DEVICE bool is_thread_0() { return threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0; }

#ifdef NODEWRIGHT_TIMED
NODEWRIGHT_DEVICE BlockStamps* own_stamps(BlockStamps* stamps) {
  const uint64_t row = blockIdx.y + static_cast<uint64_t>(gridDim.y) * blockIdx.z;
  return stamps + (blockIdx.x + gridDim.x * row);
}

// In shared memory, so that it takes no register for the length of the kernel.
NODEWRIGHT_DEVICE uint64_t& waited_ns() {
  __shared__ uint64_t waited;
  return waited;
}

NODEWRIGHT_DEVICE void stamp_start(BlockStamps* stamps) {
  if (!is_thread_0()) return;
  own_stamps(stamps)->started = clock_ns();
  waited_ns() = 0;
}

NODEWRIGHT_DEVICE void stamp_wait() {
  if (is_thread_0()) waited_ns() = clock_ns();
}

// Threads that return early from the kernel's body wait here for the others. The body itself has no barrier after an
// early return (CUDA programming guide, __syncthreads: all threads of the block or none).
NODEWRIGHT_DEVICE void stamp_end(BlockStamps* stamps) {
  __syncthreads();
  if (!is_thread_0()) return;
  BlockStamps* own = own_stamps(stamps);
  own->waited = waited_ns();
  own->ended = clock_ns();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  own->sm = sm;
}
#endif

// A predicate register, declared by asm at the start of the kernel, records whether the thread has waited. Where all
// paths wait, ptxas removes the register and the wait at the end of the kernel; where one path does not, it keeps both.
// A function that waits must be inlined into the kernel (NODEWRIGHT_DEVICE): elsewhere ptxas does not know the
// register.
NODEWRIGHT_DEVICE void start_unwaited() {
#if __CUDA_ARCH__ >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM
  asm volatile(".reg .pred nodewright_waited;\n\tsetp.ne.u32 nodewright_waited, 0, 0;");
#endif
}

// Makes every thread wait before it ends. Edge derivation relies on it where it leaves out an edge that other edges
// imply (graph/edges/edge_derivation.cpp).
NODEWRIGHT_DEVICE void end_waited() {
#if __CUDA_ARCH__ >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM
  asm volatile("@!nodewright_waited griddepcontrol.wait;");
#endif
}

// Blocks until every prerequisite grid has completed and its writes are visible (PTX ISA, griddepcontrol).
// A kernel calls it on every path, before any early return; a thread that has not called it waits when it ends.
NODEWRIGHT_DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM
  asm volatile("griddepcontrol.wait;\n\tsetp.eq.u32 nodewright_waited, 0, 0;" ::: "memory");
#endif
#ifdef NODEWRIGHT_TIMED
  stamp_wait();
#endif
}

// Lets dependent grids start. It makes no write visible to them: that is what their wait does.
NODEWRIGHT_DEVICE void release_dependents() {
#if __CUDA_ARCH__ >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits, then releases the dependents. Where a kernel releases them only with this function or by ending, all that it
// has waited for is complete when they start, so they may read it before their own wait (Settled in args.h).
NODEWRIGHT_DEVICE void release_behind_wait() {
#if __CUDA_ARCH__ >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM
  asm volatile(
      "@!nodewright_waited griddepcontrol.wait;\n\tsetp.eq.u32 nodewright_waited, 0, 0;\n\t"
      "griddepcontrol.launch_dependents;" ::
          : "memory");
#endif
}

NODEWRIGHT_DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char nodewright_shared[];
  return nodewright_shared;
}

// Loads 16 bytes of memory that nothing writes any more: non-coherent, not kept in L1. No L2 prefetch hint: on one H200
// (2026-11-20, 4 GiB read) L2::256B costs 9 % of the bandwidth (4.25 against 4.65 TB/s), L2::128B changes nothing.
NODEWRIGHT_DEVICE uint4 load_frozen_16(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// load_frozen_16 of bytes that no other block reads and nobody reads soon: in L2 they make room first. The policy is
// made for each load: as a constant it lets ptxas predicate the loads and change their order, and a step of one row
// takes up to 2 % longer (docs/products.md).
NODEWRIGHT_DEVICE uint4 load_once_16(const void* address) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address), "l"(policy));
  return v;
}

// load_once_16 into `v` where `counts`; otherwise `v` stays as it is, without an instruction.
NODEWRIGHT_DEVICE void load_once_16_where(bool counts, const void* address, uint4& v) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %6, 0;\n\t"
      "@p ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;\n\t}"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(address), "l"(policy), "r"(static_cast<uint32_t>(counts)));
}

// Sets the value that decides what the conditional node of `condition` runs. One thread of a launch calls it:
// concurrent calls are undefined (cuda_device_runtime_api.h).
NODEWRIGHT_DEVICE void set_condition(const Condition& condition, unsigned value) {
  if (condition.handle != 0)
    cudaGraphSetConditional(condition.handle, value);
  else if (condition.slot != nullptr)
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

NODEWRIGHT_DEVICE int warp_min(int v) { return __reduce_min_sync(0xffffffffu, v); }

}  // namespace nodewright

#else
#include "cpu_driver/emulation.h"
#endif

namespace nodewright {

NODEWRIGHT_DEVICE int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
NODEWRIGHT_DEVICE int warp_of_block() { return static_cast<int>(threadIdx.x / 32); }

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

// Sums each of N values (a power of two, at most 32) over the warp; lane l gets the sum of value l / (32 / N), in v[0].
// Halving butterfly: the same tree of additions as warp_sum, with half the values left after each step.
template <int N, int Offset = 16>
NODEWRIGHT_DEVICE void warp_sums_scattered(float* v) {
#ifdef __CUDACC_RTC__
  if constexpr (N > 1) {
    const bool upper = (threadIdx.x & Offset) != 0;
    NODEWRIGHT_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      const float send = upper ? v[i] : v[i + N / 2];
      const float keep = upper ? v[i + N / 2] : v[i];
      v[i] = keep + __shfl_xor_sync(0xffffffffu, send, Offset);
    }
  } else {
    v[0] += __shfl_xor_sync(0xffffffffu, v[0], Offset);
  }
  if constexpr (Offset > 1) warp_sums_scattered<(N > 1 ? N / 2 : 1), Offset / 2>(v);
#else
  emulation::warp_sums(v, N);
  v[0] = v[(threadIdx.x % 32) / (32 / N)];
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

// Loads an element of a Settled or SettledInOut field, also before wait_for_inputs(), or of any field after it.
// Bypasses L1, which may still hold an older value. The compiler does not move the load past the wait.
NODEWRIGHT_DEVICE int32_t load_settled(const int32_t* address) {
#ifdef __CUDACC_RTC__
  int32_t v;
  asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
#else
  return *address;
#endif
}

NODEWRIGHT_DEVICE float load_settled(const float* address) {
#ifdef __CUDACC_RTC__
  return __int_as_float(load_settled(reinterpret_cast<const int32_t*>(address)));
#else
  return *address;
#endif
}

// Loads what another block of this launch has written before a fence and an arrival. Bypasses L1.
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
