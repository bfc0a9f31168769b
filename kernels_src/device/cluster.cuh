// Thread-block clusters: the barrier of a cluster's blocks and each other's shared memory (PTX ISA, barrier.cluster and
// mapa; sm_90 on, below it every call traps). The launch says how many blocks make a cluster (LaunchShape::cluster). A
// block touches another's memory after the cluster's first barrier, when all have started, and no block ends before the
// barrier that follows the last access to its memory, or before it has received the last that others send
// (device/cluster_mail.cuh).
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

#ifndef __CUDACC_RTC__

// The rank of this block in its cluster, x fastest.
NODEWRIGHT_DEVICE int cluster_rank() { return emulation::hooks.cluster_rank(); }

// All threads of the cluster that have not ended arrive, then wait, in turns. What a thread wrote to any block's shared
// memory before it arrived is seen by all after they have waited. The same line for all lanes of a warp.
NODEWRIGHT_DEVICE void cluster_arrive(int line = __builtin_LINE()) { emulation::hooks.cluster_arrive(line); }
NODEWRIGHT_DEVICE void cluster_wait(int line = __builtin_LINE()) { emulation::hooks.cluster_wait(line); }
// The same where nothing that was written is to be seen: before a block's memory goes.
NODEWRIGHT_DEVICE void cluster_arrive_relaxed(int line = __builtin_LINE()) { cluster_arrive(line); }

// `own` is where the value would lie in the calling block's shared memory; it is written or read at the same place of
// block `rank`. T has 4, 8 or 16 bytes and is aligned to them.
template <class T>
NODEWRIGHT_UNCHECKED inline void store_to_block(int rank, T* own, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::require_aligned(own, sizeof(T));
  __builtin_memcpy(emulation::hooks.shared_of_block(rank, own, sizeof(T), emulation::Access::write), &value, sizeof(T));
}
template <class T>
NODEWRIGHT_UNCHECKED inline T load_from_block(int rank, const T* own) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::require_aligned(own, sizeof(T));
  T value;
  __builtin_memcpy(&value, emulation::hooks.shared_of_block(rank, own, sizeof(T), emulation::Access::read), sizeof(T));
  return value;
}

#elif __CUDA_ARCH__ >= NODEWRIGHT_CLUSTERS_FROM

NODEWRIGHT_DEVICE int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

NODEWRIGHT_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
NODEWRIGHT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
NODEWRIGHT_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

NODEWRIGHT_DEVICE uint32_t address_in_block(int rank, const void* own) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(own))), "r"(rank));
  return address;
}

template <class T>
NODEWRIGHT_DEVICE void store_to_block(int rank, T* own, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  const uint32_t address = address_in_block(rank, own);
  uint32_t w[sizeof(T) / 4];
  memcpy(w, &value, sizeof(T));
  if constexpr (sizeof(T) == 4)
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(address), "r"(w[0]) : "memory");
  else if constexpr (sizeof(T) == 8)
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1,%2};" ::"r"(address), "r"(w[0]), "r"(w[1]) : "memory");
  else
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                 "r"(w[3])
                 : "memory");
}

// A store that counts its 8 bytes at a barrier of the same block. `barrier`: its address, as that of `own`.
template <class T>
NODEWRIGHT_DEVICE void store_and_count(int rank, T* own, uint32_t barrier, T value) {
  static_assert(sizeof(T) == 8);
  uint32_t w[2], counted;
  memcpy(w, &value, sizeof(T));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];" ::"r"(
                   address_in_block(rank, own)),
               "r"(w[0]), "r"(w[1]), "r"(counted)
               : "memory");
}

template <class T>
NODEWRIGHT_DEVICE T load_from_block(int rank, const T* own) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  const uint32_t address = address_in_block(rank, own);
  uint32_t w[sizeof(T) / 4];
  if constexpr (sizeof(T) == 4)
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(w[0]) : "r"(address) : "memory");
  else if constexpr (sizeof(T) == 8)
    asm volatile("ld.shared::cluster.v2.b32 {%0,%1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(address) : "memory");
  else
    asm volatile("ld.shared::cluster.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(address)
                 : "memory");
  T value;
  memcpy(&value, w, sizeof(T));
  return value;
}

#else

NODEWRIGHT_DEVICE int cluster_rank() {
  __trap();
  return 0;
}
NODEWRIGHT_DEVICE void cluster_arrive() { __trap(); }
NODEWRIGHT_DEVICE void cluster_arrive_relaxed() { __trap(); }
NODEWRIGHT_DEVICE void cluster_wait() { __trap(); }
template <class T>
NODEWRIGHT_DEVICE void store_to_block(int, T*, T) {
  __trap();
}
template <class T>
NODEWRIGHT_DEVICE T load_from_block(int, const T* own) {
  __trap();
  return *own;
}

#endif

}  // namespace nodewright
