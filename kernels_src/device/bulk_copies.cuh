// Copies that the copy engine makes, from global memory to the block's shared memory, and the barriers that count their
// bytes (PTX ISA, cp.async.bulk, mbarrier). From compute capability 9.0 on; elsewhere kHasBulkCopies is false and there
// are none.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

// A barrier in shared memory, 8 bytes aligned to them. Its phases end when one thread has arrived and as many bytes as
// were to be expected have come; phase n is waited for by its last bit.
struct CopyBarrier {
  uint32_t address = 0;

#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
  // One thread; then publish(), then what makes others wait for that thread.
  NODEWRIGHT_DEVICE void init() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address) : "memory");
  }
  NODEWRIGHT_DEVICE static void publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

  // One thread, once a phase; bytes that have come before count, too.
  NODEWRIGHT_DEVICE void arrive_and_expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
  }
  // A multiple of 16 bytes between addresses that are, too.
  NODEWRIGHT_DEVICE void copy(void* to, const void* from, int bytes) const {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "l"(from), "r"(bytes), "r"(address)
                 : "memory");
  }
  // The same of bytes that no other block reads and nobody soon.
  NODEWRIGHT_DEVICE void copy_once(void* to, const void* from, int bytes) const {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
        "l"(from), "r"(bytes), "r"(address), "l"(policy)
        : "memory");
  }
  NODEWRIGHT_DEVICE void wait(unsigned phase) const {
    asm volatile(
        "{\n.reg .pred full;\nwaiting:\nmbarrier.try_wait.parity.shared::cta.b64 full, [%0], %1;\n@full bra arrived;\n"
        "bra waiting;\narrived:\n}" ::"r"(address),
        "r"(phase & 1)
        : "memory");
  }
#else
  NODEWRIGHT_DEVICE void init() const {}
  NODEWRIGHT_DEVICE static void publish() {}
  NODEWRIGHT_DEVICE void arrive_and_expect(int) const {}
  NODEWRIGHT_DEVICE void copy(void*, const void*, int) const {}
  NODEWRIGHT_DEVICE void wait(unsigned) const {}
#endif
};

#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= 900
constexpr bool kHasBulkCopies = true;
NODEWRIGHT_DEVICE CopyBarrier copy_barrier(const void* shared) {
  return {static_cast<uint32_t>(__cvta_generic_to_shared(shared))};
}
// What this thread has stored to shared memory comes before copies that are asked for behind a barrier of the threads.
NODEWRIGHT_DEVICE void order_stores_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
constexpr bool kHasBulkCopies = false;
NODEWRIGHT_DEVICE CopyBarrier copy_barrier(const void*) { return {}; }
NODEWRIGHT_DEVICE void order_stores_before_copies() {}
#endif

}  // namespace nodewright
