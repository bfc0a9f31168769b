// Copies that the copy engine makes, from global memory to the block's shared memory, and the barriers that count their
// bytes (PTX ISA, cp.async.bulk, mbarrier). From compute capability 9.0 on; elsewhere kHasBulkCopies is false and there
// are none.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= NODEWRIGHT_BULK_COPIES_FROM

constexpr bool kHasBulkCopies = true;

NODEWRIGHT_DEVICE uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// One lane of the warp, whose lanes all call it.
NODEWRIGHT_DEVICE bool elected_lane() {
  uint32_t elected;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
  return elected != 0;
}
// warp_of_block(), in a register that the warp's lanes share.
NODEWRIGHT_DEVICE int uniform_warp() { return __shfl_sync(0xffffffffu, warp_of_block(), 0); }

// A barrier in shared memory, 8 bytes aligned to them. A phase ends when as many threads as `arrivals` says have
// arrived and as many bytes as they expect have come; phase n is waited for by its last bit.
struct CopyBarrier {
  uint32_t address = 0;

  // One thread; then publish(), then what makes others wait for that thread.
  NODEWRIGHT_DEVICE void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
  }
  NODEWRIGHT_DEVICE static void publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

  // Bytes that have come before count, too.
  NODEWRIGHT_DEVICE void arrive_and_expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
  }
  NODEWRIGHT_DEVICE void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  // Arrives when the thread's copies of 16 bytes (copy_16) have come.
  NODEWRIGHT_DEVICE void arrive_after_copies() const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
  }
  // A multiple of 16 bytes between addresses that are, too. `to`: in shared memory.
  NODEWRIGHT_DEVICE void copy(uint32_t to, const void* from, int bytes) const {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(address)
                 : "memory");
  }
  // The same, of bytes that no other block reads, and that nobody reads soon.
  NODEWRIGHT_DEVICE void copy_once(uint32_t to, const void* from, int bytes) const {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
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
  // The same for what threads of other blocks have stored and counted here.
  NODEWRIGHT_DEVICE void wait_for_cluster(unsigned phase) const {
    asm volatile(
        "{\n.reg .pred full;\nwaiting:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 full, [%0], %1;\n"
        "@full bra arrived;\nbra waiting;\narrived:\n}" ::"r"(address),
        "r"(phase & 1)
        : "memory");
  }
};

// By the thread itself: a copy of 16 bytes, which are zeros unless `valid`, and stores.
NODEWRIGHT_DEVICE void copy_16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
NODEWRIGHT_DEVICE void store_4(uint32_t to, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
NODEWRIGHT_DEVICE uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
NODEWRIGHT_DEVICE void store_shared(uint32_t to, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
NODEWRIGHT_DEVICE void store_zeros(uint32_t to) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

// What this thread has stored to shared memory comes before copies that are asked for after a barrier of the threads.
NODEWRIGHT_DEVICE void order_stores_before_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#else

constexpr bool kHasBulkCopies = false;

NODEWRIGHT_DEVICE uint32_t shared_address(const void*) { return 0; }
struct CopyBarrier {
  uint32_t address = 0;
  NODEWRIGHT_DEVICE void init(int) const {}
  NODEWRIGHT_DEVICE static void publish() {}
  NODEWRIGHT_DEVICE void arrive_and_expect(int) const {}
  NODEWRIGHT_DEVICE void copy(uint32_t, const void*, int) const {}
  NODEWRIGHT_DEVICE void wait(unsigned) const {}
  NODEWRIGHT_DEVICE void wait_for_cluster(unsigned) const {}
};
NODEWRIGHT_DEVICE void order_stores_before_copies() {}

#endif

}  // namespace nodewright
