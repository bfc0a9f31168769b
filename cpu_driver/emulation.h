// The kernel dialect for the host compiler: CUDA's names over fibers of the CPU driver. device/dialect.cuh includes it
// in place of CUDA; the CPU driver includes the first half, the interface between a kernel image and the driver.
// Not a general CUDA emulation: what a kernel may use is what stands here.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef __x86_64__
#error "the CPU driver runs on x86-64 only"
#endif

namespace nodewright::emulation {

// Changes with every change of the structs below; the driver refuses other images.
inline constexpr uint32_t kAbiVersion = 8;

struct Index3 {
  unsigned x, y, z;
};

// What all threads of a block share.
struct BlockView {
  Index3 block, block_size, grid_size;
  unsigned char* shared;  // dynamic shared memory, 128-byte aligned
  uint64_t waited_ns;     // timed kernels: when thread 0 had waited
  int counted;            // __syncthreads_count: threads so far; 0 between two
};

// One CUDA thread. The OS thread's slot (Hooks::thread_slot) points at the one that runs.
struct ThreadView {
  BlockView* block;
  Index3 thread;
  unsigned lane;  // 0 to 31
  unsigned warp;
  bool waited;  // has called wait_for_inputs()
};

// Runs once per warp collective, when the last lane has arrived: lanes[i] is what lane i brought, null outside `mask`.
using WarpBody = void (*)(void* const* lanes, uint32_t mask);

enum class Access : uint32_t { read, write, atomic, frozen_read, peer_write, peer_read };

// The driver's side, copied into the image when it is loaded.
struct Hooks {
  ptrdiff_t thread_slot;      // from the thread pointer (%fs:0) to the ThreadView* of the running thread
  void (*barrier)(int line);  // __syncthreads
  void (*rendezvous)(uint32_t mask, void* mine, WarpBody body);
  void (*check)(const volatile void* address, size_t bytes, Access access);  // checked images
  void (*fail)(const char* what);                                            // does not return
  void (*set_condition)(uint64_t handle, uint32_t value);                    // of a handle among the arguments
  int (*cluster_rank)();
  void (*cluster_arrive)(int line);
  void (*cluster_wait)(int line);
  // What lies in block `rank` of the cluster where `own` lies in the running block; both in dynamic shared memory.
  unsigned char* (*shared_of_block)(int rank, const void* own, size_t bytes, Access access);
  // Eight bytes for another device: on their way when it returns, there when the schedule delivers them.
  void (*store_in_peer)(void* address, uint64_t value);
  // Returns when *address is no longer `seen`, or when *abort_word is not 0. `epoch`, for reports: what is waited for.
  void (*wait_for_packet)(const void* address, uint64_t seen, uint32_t epoch, const uint32_t* abort_word);
};

struct FieldRecord {
  char name[64];
  uint32_t offset, bytes;
  uint32_t role;  // nodewright::Role
  uint32_t element_bytes;
};

// Exported by every image as `nodewright_cpu_kernel`.
struct Descriptor {
  uint32_t abi_version;
  uint32_t checked;  // loads and stores call Hooks::check
  const char* name;
  void (*entry)(const void* args);
  uint32_t args_bytes;
  uint32_t max_threads;
  const char *waits_begin, *waits_end;  // one byte for each wait_for_inputs() in the code
  uint32_t (*fields)(FieldRecord* records, uint32_t capacity);
  Hooks* hooks;
};

// The section that holds those bytes, assembled where the calls are inlined, so that the image tells whether its code
// really waits.
#define NODEWRIGHT_NOTE_WAIT() \
  asm volatile(".pushsection nodewright_waits,\"a\",@progbits\n\t.byte 1\n\t.popsection" ::: "memory")

}  // namespace nodewright::emulation

#ifndef NODEWRIGHT_CPU_DRIVER  // from here on: the image's side

#include <math.h>
#include <time.h>

#define NODEWRIGHT_KERNEL_IMAGE
#include "kernels_src/block_stamps.h"
#include "kernels_src/field_visit.h"

namespace nodewright::emulation {

static Hooks hooks;

extern "C" {
[[gnu::weak, gnu::visibility("hidden")]] extern const char __start_nodewright_waits[];
[[gnu::weak, gnu::visibility("hidden")]] extern const char __stop_nodewright_waits[];
}

#ifdef NODEWRIGHT_CHECKED
// Runs outside the checks; not inlined, since a checked function may not take in an unchecked one.
#define NODEWRIGHT_UNCHECKED [[gnu::noinline, gnu::no_sanitize("thread")]]
#else
#define NODEWRIGHT_UNCHECKED [[gnu::always_inline]]
#endif

// Not volatile: a block stays on its OS thread, and the slot holds this thread again whenever it runs.
[[gnu::always_inline]] inline ThreadView* view() {
  const char* base;
  asm("mov %%fs:0, %0" : "=r"(base));
  return *reinterpret_cast<ThreadView* const*>(base + hooks.thread_slot);
}

inline void check(const volatile void* address, size_t bytes, Access access) {
#ifdef NODEWRIGHT_CHECKED
  hooks.check(address, bytes, access);
#else
  (void)address, (void)bytes, (void)access;
#endif
}

// A GPU refuses a vector access that is not aligned to its size; x86 would not notice.
inline void require_aligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) hooks.fail("a vector access is not aligned to its size");
}

template <class A>
uint32_t describe_fields(FieldRecord* records, uint32_t capacity) {
  uint32_t count = 0;
  const A args{};
  for_each_field(args, [&](const FieldInfo& field, const auto&) {
    if (count == capacity) return;
    FieldRecord& record = records[count++];
    const size_t length = field.name.size() < sizeof(record.name) - 1 ? field.name.size() : sizeof(record.name) - 1;
    __builtin_memcpy(record.name, field.name.data(), length);
    record.name[length] = 0;
    record.offset = static_cast<uint32_t>(field.offset);
    record.bytes = static_cast<uint32_t>(field.bytes);
    record.role = static_cast<uint32_t>(field.role);
    record.element_bytes = static_cast<uint32_t>(field.element_bytes);
  });
  return count;
}

// ---- the clock, and the stamps of timed kernels ----

NODEWRIGHT_UNCHECKED inline uint64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

inline bool is_thread_0(const ThreadView* v) { return v->thread.x == 0 && v->thread.y == 0 && v->thread.z == 0; }

NODEWRIGHT_UNCHECKED inline BlockStamps* own_stamps(BlockStamps* stamps) {
  const BlockView& b = *view()->block;
  return stamps + (b.block.x + b.grid_size.x * (b.block.y + uint64_t{b.grid_size.y} * b.block.z));
}

// Before the wait, where a checked image allows no write but this one.
NODEWRIGHT_UNCHECKED inline void stamp_start(BlockStamps* stamps) {
  if (!is_thread_0(view())) return;
  view()->block->waited_ns = 0;
  own_stamps(stamps)->started = clock_ns();
}

NODEWRIGHT_UNCHECKED inline void stamp_wait() {
  if (is_thread_0(view())) view()->block->waited_ns = clock_ns();
}

NODEWRIGHT_UNCHECKED inline void stamp_end(BlockStamps* stamps) {
  hooks.barrier(-1);  // no line of a kernel
  if (!is_thread_0(view())) return;
  BlockStamps* own = own_stamps(stamps);
  check(own, sizeof *own, Access::write);
  own->waited = view()->block->waited_ns;
  own->ended = clock_ns();
  own->sm = 0;
}

// ---- a kernel's two forms: what the driver calls, with what ----

template <class A>
struct PlainForm {
  static constexpr uint32_t kArgsBytes = sizeof(A);
  template <void (*Kernel)(const A&)>  // typed: a kernel may be named as a function of the C library
  static void run(const void* args) {
    Kernel(*static_cast<const A*>(args));
  }
  static uint32_t fields(FieldRecord* records, uint32_t capacity) { return describe_fields<A>(records, capacity); }
};

template <class A>
struct TimedForm {
  static constexpr uint32_t kArgsBytes = sizeof(Timed<A>);
  static_assert(offsetof(Timed<A>, stamps) == timed_stamps_offset(sizeof(A)));
  template <void (*Kernel)(const A&)>
  static void run(const void* args) {
    const auto& timed = *static_cast<const Timed<A>*>(args);
    stamp_start(timed.stamps.data);
    Kernel(timed.args);
    stamp_end(timed.stamps.data);
  }
  // Those of the kernel's own arguments, and the stamps.
  static uint32_t fields(FieldRecord* records, uint32_t capacity) {
    const uint32_t count = describe_fields<A>(records, capacity);
    if (count == capacity) return count;
    using Slots = Out<BlockStamps>;
    records[count] = {"stamps", offsetof(Timed<A>, stamps), sizeof(Slots), static_cast<uint32_t>(RoleOf<Slots>::role),
                      static_cast<uint32_t>(RoleOf<Slots>::element_bytes)};
    return count + 1;
  }
};

// ---- warp collectives: each lane brings a struct on its stack, the last one to arrive serves all ----

template <class T, class Body>
[[gnu::always_inline]] inline void with_warp(uint32_t mask, T& mine, Body) {
  static_assert(__is_empty(Body));
  hooks.rendezvous(mask, &mine,
                   [](void* const* lanes, uint32_t present) { Body{}(reinterpret_cast<T* const*>(lanes), present); });
}

template <class T>
struct Shuffle {
  T value, result;
  uint32_t source;
};

template <class T>
[[gnu::always_inline]] inline T shuffle(uint32_t mask, T value, uint32_t source) {
  static_assert(sizeof(T) <= 8);
  Shuffle<T> mine{value, value, source & 31u};
  with_warp(mask, mine, [](Shuffle<T>* const* lanes, uint32_t present) {
    for (uint32_t left = present; left != 0; left &= left - 1) {
      Shuffle<T>* lane = lanes[__builtin_ctz(left)];
      if (!(present >> lane->source & 1u)) hooks.fail("a shuffle reads a lane that its mask does not name");
      lane->result = lanes[lane->source]->value;
    }
  });
  return mine.result;
}

struct Ballot {
  uint32_t predicate, result;
};

inline uint32_t ballot(uint32_t mask, bool predicate) {
  Ballot mine{predicate, 0};
  with_warp(mask, mine, [](Ballot* const* lanes, uint32_t present) {
    uint32_t bits = 0;
    for (uint32_t left = present; left != 0; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      bits |= lanes[lane]->predicate << lane;
    }
    for (uint32_t left = present; left != 0; left &= left - 1) lanes[__builtin_ctz(left)]->result = bits;
  });
  return mine.result;
}

struct Sums {
  float* values;
  int count;
};

// The GPU's butterfly (xor 16, 8, 4, 2, 1) gives all lanes of a group the same bits, because addition commutes: one
// tree per group does.
template <int Lanes>
inline void sum_lanes(Sums* const* lanes) {
  const int count = lanes[0]->count;
  for (int i = 1; i < 32; ++i)
    if (lanes[i]->count != count) hooks.fail("the lanes of a warp sum different numbers of values");
  for (int k = 0; k < count; ++k) {
    float v[32];
    for (int i = 0; i < 32; ++i) v[i] = lanes[i]->values[k];
    for (int half = Lanes / 2; half > 0; half /= 2)
      for (int base = 0; base < 32; base += Lanes)
        for (int i = 0; i < half; ++i) v[base + i] += v[base + i + half];
    for (int i = 0; i < 32; ++i) lanes[i]->values[k] = v[i & ~(Lanes - 1)];
  }
}

template <int Lanes>
inline void sum_groups(float* values, int count) {
  Sums mine{values, count};
  with_warp(0xffffffffu, mine, [](Sums* const* lanes, uint32_t) { sum_lanes<Lanes>(lanes); });
}

inline void warp_sums(float* values, int count) { sum_groups<32>(values, count); }

// The same over each aligned group of `lanes` lanes, a power of two.
[[gnu::always_inline]] inline void group_sums(float* values, int count, int lanes) {
  switch (lanes) {
    case 1:
      return;
    case 2:
      return sum_groups<2>(values, count);
    case 4:
      return sum_groups<4>(values, count);
    case 8:
      return sum_groups<8>(values, count);
    case 16:
      return sum_groups<16>(values, count);
    case 32:
      return sum_groups<32>(values, count);
    default:
      hooks.fail("group_sums over a number of lanes that is no power of two");
  }
}

inline float warp_max(float value) {
  float mine = value;
  with_warp(0xffffffffu, mine, [](float* const* lanes, uint32_t) {
    float top = *lanes[0];
    for (int i = 1; i < 32; ++i) top = fmaxf(top, *lanes[i]);
    for (int i = 0; i < 32; ++i) *lanes[i] = top;
  });
  return mine;
}

inline int warp_min(int value) {
  int mine = value;
  with_warp(0xffffffffu, mine, [](int* const* lanes, uint32_t) {
    int least = *lanes[0];
    for (int i = 1; i < 32; ++i) least = *lanes[i] < least ? *lanes[i] : least;
    for (int i = 0; i < 32; ++i) *lanes[i] = least;
  });
  return mine;
}

// ---- atomics: real ones, since blocks run on several threads ----

template <class T>
struct Same {
  using type = T;
};

template <class T, class Change>
NODEWRIGHT_UNCHECKED inline T exchange_until_done(T* address, Change change) {
  check(address, sizeof(T), Access::atomic);
  T seen;
  __atomic_load(address, &seen, __ATOMIC_SEQ_CST);
  for (;;) {
    T next = change(seen);
    if (__atomic_compare_exchange(address, &seen, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return seen;
  }
}

// ---- packets: device/packets.cuh ----

NODEWRIGHT_UNCHECKED inline void store_in_peer(void* address, uint64_t value) {
  check(address, sizeof value, Access::peer_write);
  require_aligned(address, sizeof value);
  hooks.store_in_peer(address, value);
}
NODEWRIGHT_UNCHECKED inline uint64_t load_from_peer(const void* address) {
  check(address, sizeof(uint64_t), Access::peer_read);
  require_aligned(address, sizeof(uint64_t));
  return __atomic_load_n(static_cast<const uint64_t*>(address), __ATOMIC_RELAXED);
}

// A store to no address: what the block has sent before it arrives before what it sends after it.
NODEWRIGHT_UNCHECKED inline void fence_peers() { hooks.store_in_peer(nullptr, 0); }

}  // namespace nodewright::emulation

// ---- the names of the dialect ----

#define NODEWRIGHT_DEVICE [[gnu::always_inline]] inline
#define NODEWRIGHT_CALLED inline
#ifdef __clang__
#define NODEWRIGHT_UNROLL _Pragma("unroll")
#else
#define NODEWRIGHT_UNROLL _Pragma("GCC unroll 8")
#endif
#define NODEWRIGHT_UNROLL_BY(count)
#define NODEWRIGHT_UNROLL_ON_DEVICE
#define NODEWRIGHT_NO_UNROLL
#define __device__
#define __forceinline__ [[gnu::always_inline]] inline

#ifdef NODEWRIGHT_CHECKED
#define NODEWRIGHT_IMAGE_CHECKED 1
#else
#define NODEWRIGHT_IMAGE_CHECKED 0
#endif

// Defines the kernel's body and the descriptor through which the driver finds it.
#ifdef NODEWRIGHT_TIMED
#define NODEWRIGHT_FORM ::nodewright::emulation::TimedForm
#else
#define NODEWRIGHT_FORM ::nodewright::emulation::PlainForm
#endif
#define NODEWRIGHT_KERNEL(kernel, Args, threads)                                                                    \
  static void kernel(const ::nodewright::Args& __restrict args);                                                    \
  extern "C"                                                                                                        \
      [[gnu::visibility("default"), gnu::used]] const ::nodewright::emulation::Descriptor nodewright_cpu_kernel = { \
          ::nodewright::emulation::kAbiVersion,                                                                     \
          NODEWRIGHT_IMAGE_CHECKED,                                                                                 \
          #kernel,                                                                                                  \
          &NODEWRIGHT_FORM<::nodewright::Args>::run<kernel>,                                                        \
          NODEWRIGHT_FORM<::nodewright::Args>::kArgsBytes,                                                          \
          static_cast<uint32_t>(threads),                                                                           \
          ::nodewright::emulation::__start_nodewright_waits,                                                        \
          ::nodewright::emulation::__stop_nodewright_waits,                                                         \
          &NODEWRIGHT_FORM<::nodewright::Args>::fields,                                                             \
          &::nodewright::emulation::hooks};                                                                         \
  static void kernel([[maybe_unused]] const ::nodewright::Args& __restrict args)

#define NODEWRIGHT_KERNEL_OF(kernel, Args, threads, blocks_of_an_sm) NODEWRIGHT_KERNEL(kernel, Args, threads)

#define threadIdx (::nodewright::emulation::view()->thread)
#define blockIdx (::nodewright::emulation::view()->block->block)
#define blockDim (::nodewright::emulation::view()->block->block_size)
#define gridDim (::nodewright::emulation::view()->block->grid_size)

namespace nodewright {

NODEWRIGHT_DEVICE void wait_for_inputs() {
  NODEWRIGHT_NOTE_WAIT();
  emulation::view()->waited = true;
#ifdef NODEWRIGHT_TIMED
  emulation::stamp_wait();
#endif
}
NODEWRIGHT_DEVICE uint64_t clock_ns() { return emulation::clock_ns(); }
NODEWRIGHT_DEVICE void release_dependents() {}
NODEWRIGHT_DEVICE void release_behind_wait() { emulation::view()->waited = true; }
NODEWRIGHT_DEVICE unsigned char* shared_memory() { return emulation::view()->block->shared; }
NODEWRIGHT_DEVICE float warp_max(float v) { return emulation::warp_max(v); }
NODEWRIGHT_DEVICE int warp_min(int v) { return emulation::warp_min(v); }
NODEWRIGHT_DEVICE float warp_sum(float v) {
  emulation::warp_sums(&v, 1);
  return v;
}

}  // namespace nodewright

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
NODEWRIGHT_DEVICE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
NODEWRIGHT_DEVICE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
NODEWRIGHT_DEVICE int2 make_int2(int x, int y) { return {x, y}; }
NODEWRIGHT_DEVICE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
NODEWRIGHT_DEVICE float2 make_float2(float x, float y) { return {x, y}; }
NODEWRIGHT_DEVICE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace nodewright {

NODEWRIGHT_UNCHECKED inline uint4 load_frozen_16(const void* address) {
  emulation::check(address, 16, emulation::Access::frozen_read);
  emulation::require_aligned(address, 16);
  uint4 v;
  __builtin_memcpy(&v, __builtin_assume_aligned(address, 16), 16);
  return v;
}
NODEWRIGHT_UNCHECKED inline uint4 load_once_16(const void* address) { return load_frozen_16(address); }
NODEWRIGHT_UNCHECKED inline void load_once_16_where(bool counts, const void* address, uint4& v) {
  if (counts) v = load_frozen_16(address);
}

}  // namespace nodewright

namespace nodewright {

NODEWRIGHT_DEVICE void set_condition(const Condition& condition, unsigned value) {
  if (condition.handle != 0)
    emulation::hooks.set_condition(condition.handle, value);
  else if (condition.slot != nullptr)
    *condition.slot = value;
}

}  // namespace nodewright

// One line per barrier tells a divergent __syncthreads from a common one.
NODEWRIGHT_DEVICE void __syncthreads(int line = __builtin_LINE()) { ::nodewright::emulation::hooks.barrier(line); }
NODEWRIGHT_DEVICE int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  int& counted = ::nodewright::emulation::view()->block->counted;
  counted += predicate != 0 ? 1 : 0;
  __syncthreads(line);
  const int all = counted;
  __syncthreads(line);
  counted = 0;
  __syncthreads(line);
  return all;
}
NODEWRIGHT_DEVICE void __syncwarp(unsigned mask = 0xffffffffu) {
  char nothing;
  ::nodewright::emulation::with_warp(mask, nothing, [](char* const*, uint32_t) {});
}

template <class T>
NODEWRIGHT_DEVICE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned lane = ::nodewright::emulation::view()->lane, base = lane & ~static_cast<unsigned>(width - 1);
  return ::nodewright::emulation::shuffle(mask, value, base + (static_cast<unsigned>(source) & (width - 1u)));
}
template <class T>
NODEWRIGHT_DEVICE T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const unsigned lane = ::nodewright::emulation::view()->lane, source = lane ^ static_cast<unsigned>(bits);
  return ::nodewright::emulation::shuffle(
      mask, value, source < (lane & ~(width - 1u)) + static_cast<unsigned>(width) ? source : lane);
}
template <class T>
NODEWRIGHT_DEVICE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::nodewright::emulation::view()->lane, source = lane + delta;
  return ::nodewright::emulation::shuffle(
      mask, value, source < (lane & ~(width - 1u)) + static_cast<unsigned>(width) ? source : lane);
}
template <class T>
NODEWRIGHT_DEVICE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::nodewright::emulation::view()->lane, base = lane & ~(width - 1u);
  return ::nodewright::emulation::shuffle(mask, value, lane >= base + delta ? lane - delta : lane);
}
NODEWRIGHT_DEVICE unsigned __ballot_sync(unsigned mask, int predicate) {
  return ::nodewright::emulation::ballot(mask, predicate != 0);
}
NODEWRIGHT_DEVICE int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
NODEWRIGHT_DEVICE int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <class T>
NODEWRIGHT_DEVICE T atomicAdd(T* address, typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(address,
                                                      [value](T seen) { return static_cast<T>(seen + value); });
}
template <class T>
NODEWRIGHT_DEVICE T atomicMax(T* address, typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(address, [value](T seen) { return seen < value ? value : seen; });
}
template <class T>
NODEWRIGHT_DEVICE T atomicMin(T* address, typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(address, [value](T seen) { return value < seen ? value : seen; });
}
template <class T>
NODEWRIGHT_DEVICE T atomicOr(T* address, typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(address, [value](T seen) { return seen | value; });
}
template <class T>
NODEWRIGHT_DEVICE T atomicExch(T* address, typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(address, [value](T) { return value; });
}
// Counts up to `top`, then starts again at 0.
NODEWRIGHT_DEVICE unsigned atomicInc(unsigned* address, unsigned top) {
  return ::nodewright::emulation::exchange_until_done(address,
                                                      [top](unsigned seen) { return seen >= top ? 0 : seen + 1; });
}
template <class T>
NODEWRIGHT_DEVICE T atomicCAS(T* address, typename ::nodewright::emulation::Same<T>::type expected,
                              typename ::nodewright::emulation::Same<T>::type value) {
  return ::nodewright::emulation::exchange_until_done(
      address, [expected, value](T seen) { return seen == expected ? value : seen; });
}
NODEWRIGHT_UNCHECKED inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
NODEWRIGHT_UNCHECKED inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
[[noreturn]] NODEWRIGHT_DEVICE void __trap() {
  ::nodewright::emulation::hooks.fail("the kernel called __trap()");
  __builtin_unreachable();
}

template <class T>
NODEWRIGHT_DEVICE T __ldg(const T* address) {
  return *address;
}
template <class T>
NODEWRIGHT_DEVICE T __ldcs(const T* address) {
  return *address;
}

NODEWRIGHT_DEVICE float __expf(float v) { return expf(v); }
NODEWRIGHT_DEVICE float __exp2f(float v) { return exp2f(v); }
NODEWRIGHT_DEVICE float __logf(float v) { return logf(v); }
NODEWRIGHT_DEVICE float __log2f(float v) { return log2f(v); }
NODEWRIGHT_DEVICE float __sinf(float v) { return sinf(v); }
NODEWRIGHT_DEVICE float __cosf(float v) { return cosf(v); }
NODEWRIGHT_DEVICE float __powf(float base, float power) { return powf(base, power); }
NODEWRIGHT_DEVICE float rsqrtf(float v) { return 1.0f / sqrtf(v); }
NODEWRIGHT_DEVICE float __fdividef(float a, float b) { return a / b; }
NODEWRIGHT_DEVICE float __frcp_rn(float v) { return 1.0f / v; }
NODEWRIGHT_DEVICE float __fadd_rn(float a, float b) { return a + b; }
NODEWRIGHT_DEVICE float __fmul_rn(float a, float b) { return a * b; }
NODEWRIGHT_DEVICE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
NODEWRIGHT_DEVICE float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }
NODEWRIGHT_DEVICE int __float2int_rn(float v) { return static_cast<int>(rintf(v)); }
NODEWRIGHT_DEVICE int __float2int_rd(float v) { return static_cast<int>(floorf(v)); }
NODEWRIGHT_DEVICE int __float2int_rz(float v) { return static_cast<int>(v); }
NODEWRIGHT_DEVICE float __int2float_rn(int v) { return static_cast<float>(v); }
NODEWRIGHT_DEVICE float __uint2float_rn(unsigned v) { return static_cast<float>(v); }
NODEWRIGHT_DEVICE float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
NODEWRIGHT_DEVICE unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
NODEWRIGHT_DEVICE float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
NODEWRIGHT_DEVICE int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
NODEWRIGHT_DEVICE int __popc(unsigned v) { return __builtin_popcount(v); }
NODEWRIGHT_DEVICE int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
NODEWRIGHT_DEVICE int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
NODEWRIGHT_DEVICE int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
NODEWRIGHT_DEVICE int __ffs(int v) { return __builtin_ffs(v); }
NODEWRIGHT_DEVICE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

template <class A, class B>
NODEWRIGHT_DEVICE constexpr auto min(A a, B b) {
  using T = decltype(true ? a : b);
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
NODEWRIGHT_DEVICE constexpr auto max(A a, B b) {
  using T = decltype(true ? a : b);
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

#ifdef NODEWRIGHT_CHECKED
// What -fsanitize=thread calls at every load and store. The sanitizer's own library is not linked.
extern "C" {
#define NODEWRIGHT_CALLBACKS(n)                            \
  NODEWRIGHT_CALLBACK(__tsan_read##n, n, read)             \
  NODEWRIGHT_CALLBACK(__tsan_write##n, n, write)           \
  NODEWRIGHT_CALLBACK(__tsan_unaligned_read##n, n, read)   \
  NODEWRIGHT_CALLBACK(__tsan_unaligned_write##n, n, write) \
  NODEWRIGHT_CALLBACK(__tsan_volatile_read##n, n, read)    \
  NODEWRIGHT_CALLBACK(__tsan_volatile_write##n, n, write)
#define NODEWRIGHT_CALLBACK(function, n, access)                                                      \
  [[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void function(void* address) { \
    ::nodewright::emulation::hooks.check(address, n, ::nodewright::emulation::Access::access);        \
  }
NODEWRIGHT_CALLBACKS(1)
NODEWRIGHT_CALLBACKS(2)
NODEWRIGHT_CALLBACKS(4)
NODEWRIGHT_CALLBACKS(8)
NODEWRIGHT_CALLBACKS(16)
#undef NODEWRIGHT_CALLBACK
#undef NODEWRIGHT_CALLBACKS
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_read_range(void* address,
                                                                                            unsigned long bytes) {
  ::nodewright::emulation::hooks.check(address, bytes, ::nodewright::emulation::Access::read);
}
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_write_range(void* address,
                                                                                             unsigned long bytes) {
  ::nodewright::emulation::hooks.check(address, bytes, ::nodewright::emulation::Access::write);
}
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_vptr_update(void*, void*) {}
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_func_entry(void*) {}
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_func_exit(void*) {}
[[gnu::visibility("hidden"), gnu::no_sanitize("thread"), gnu::used]] void __tsan_init() {}
}
#endif

#endif  // NODEWRIGHT_CPU_DRIVER
