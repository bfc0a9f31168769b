// Matrix products of a warpgroup, four warps of 64 rows, whose right operand the tensor cores read from shared memory
// (PTX ISA, wgmma). Of sm_90a alone.
#pragma once

#include "kernels_src/device/dialect.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace nodewright {

// A matrix in shared memory whose rows of 64 elements are stored in the 128-byte swizzle (kv_in_row of heads of 64),
// eight of them 1024 bytes aligned to these, the next eight after them. Further columns: `block_bytes` behind.
NODEWRIGHT_DEVICE uint64_t swizzled_matrix(uint32_t address, int block_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | static_cast<uint64_t>(block_bytes / 16) << 16 | (address >> 4 & 0x3fff);
}

// What the warpgroup has written to registers comes before products that read them or add to them.
NODEWRIGHT_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes a group of products.
NODEWRIGHT_DEVICE void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all groups but the last kLeft are done; then hold() their registers.
template <int kLeft>
NODEWRIGHT_DEVICE void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps the compiler from moving what it does with the registers to where products may still use them.
template <int N>
NODEWRIGHT_DEVICE void hold(float (&c)[N][4]) {
  NODEWRIGHT_UNROLL
  for (int n = 0; n < N; ++n) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
template <int N>
NODEWRIGHT_DEVICE void hold(uint32_t (&a)[N][4]) {
  NODEWRIGHT_UNROLL
  for (int n = 0; n < N; ++n) asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}

#define NODEWRIGHT_SUMS_8(n)                                                                                           \
  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3]), "+f"(c[n + 1][0]), "+f"(c[n + 1][1]), "+f"(c[n + 1][2]), \
      "+f"(c[n + 1][3])
#define NODEWRIGHT_SUMS_32(n) \
  NODEWRIGHT_SUMS_8(n), NODEWRIGHT_SUMS_8(n + 2), NODEWRIGHT_SUMS_8(n + 4), NODEWRIGHT_SUMS_8(n + 6)
#define NODEWRIGHT_NAMES_32                                                                                            \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define NODEWRIGHT_NAMES_64                                                                                          \
  NODEWRIGHT_NAMES_32                                                                                                \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59" \
  ",%60,%61,%62,%63"

// c = a . b, or c += a . b where `adds`, over 16 columns of a and of b, both swizzled_matrix: 64 rows of a by 64 of b.
// c: of each warp its 16 rows, as in mma_16x8x16, c[n] columns 8n to 8n + 7.
NODEWRIGHT_DEVICE void multiply_by_rows(float (&c)[8][4], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NODEWRIGHT_NAMES_32 "}, %32, %33, adds, 1, 1, 0, 0;\n}"
      : NODEWRIGHT_SUMS_32(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

// c += a . b of 64 rows of a, over 16 rows of b: its 8 N columns, N 8 or 16. a: as in mma_16x8x16.
template <int N>
NODEWRIGHT_DEVICE void add_by_columns(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (N == 8)
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NODEWRIGHT_NAMES_32
        "}, {%32,%33,%34,%35}, %36, adds, 1, 1, 1;\n}"
        : NODEWRIGHT_SUMS_32(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  if constexpr (N == 16)
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NODEWRIGHT_NAMES_64
        "}, {%64,%65,%66,%67}, %68, adds, 1, 1, 1;\n}"
        : NODEWRIGHT_SUMS_32(0), NODEWRIGHT_SUMS_32(8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef NODEWRIGHT_SUMS_8
#undef NODEWRIGHT_SUMS_32
#undef NODEWRIGHT_NAMES_32
#undef NODEWRIGHT_NAMES_64

// Registers of each thread of the warpgroup from here on: more, which others have given up, or fewer.
template <int kRegisters>
NODEWRIGHT_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
NODEWRIGHT_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barrier `id`, 1 to 15, of kThreads threads, of which these wait or only arrive.
template <int kThreads>
NODEWRIGHT_DEVICE void meet(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <int kThreads>
NODEWRIGHT_DEVICE void arrive_at(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

}  // namespace nodewright

#endif
