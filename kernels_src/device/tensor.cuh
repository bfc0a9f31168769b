// Tensor-core instructions and asynchronous copies: inline PTX of sm_80 on. All are collectives of a whole warp, except
// AsyncCopies, of which every thread has its own. On the CPU driver a collective costs 32 switches of threads whatever
// it does, so kernels multiply there by the whole steps of tensor_emulation.cuh.
#pragma once

#include "kernels_src/device/numeric.cuh"

#ifdef __CUDACC_RTC__
#define NODEWRIGHT_COLLECTIVE NODEWRIGHT_DEVICE
#else  // the host compiler takes ten times as long where they are inlined
#define NODEWRIGHT_COLLECTIVE [[gnu::noinline]] inline
#include "kernels_src/device/tensor_emulation.cuh"
#endif

namespace nodewright {

#ifdef __CUDACC_RTC__
// c += a . b, a [16, 16] and b [16, 8] bf16, c [16, 8] fp32 (PTX ISA, mma.m16n8k16). With g = lane / 4, t = lane % 4:
// a: rows g and g + 8 in turn, columns 2t, 2t + 1, then the same from column 8 on; b: rows 2t, 2t + 1 of column g, then
// from row 8 on; c: columns 2t, 2t + 1 of row g, then of row g + 8.
NODEWRIGHT_DEVICE void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same, of operands in fp16 or bf16.
template <bool kHalves>
NODEWRIGHT_DEVICE void multiply_operands(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (!kHalves)
    mma_16x8x16(c, a, b0, b1);
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// Four 8 x 8 matrices of 16-bit elements out of shared memory: lane l names row l % 8 of matrix l / 8, 16 bytes, and
// gets of each matrix m elements 2t, 2t + 1 of row g in v[m] (PTX ISA, ldmatrix.x4).
NODEWRIGHT_COLLECTIVE void load_matrices(uint32_t (&v)[4], const bf16* row) {
#ifdef __CUDACC_RTC__
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
#else
  emulation::load_matrices(v, load_16(row));
#endif
}

#ifdef __CUDACC_RTC__
// The same, each matrix transposed: rows 2t and 2t + 1 of column g.
NODEWRIGHT_DEVICE void load_matrices_transposed(uint32_t (&v)[4], const bf16* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
#endif

#ifndef __CUDACC_RTC__
// multiply_rows in one chain.
template <int kSteps, class Pieces, int N, int kChains, class LeftOf, class Piece>
void emulate_rows(float (&c)[N][kChains][2][4], const LeftOf& left, const Piece& piece) {
  uint32_t a[kSteps][4];
  for (int step = 0; step < kSteps; ++step) left(a[step], step);
  float sums[2 * N][4];
  for (int n = 0; n < 2 * N; ++n)
    for (int i = 0; i < 4; ++i) sums[n][i] = c[n / 2][0][n % 2][i];
  emulation::multiply_rows<2 * N, kSteps, Pieces>(sums, a, piece);
  for (int n = 0; n < 2 * N; ++n)
    for (int i = 0; i < 4; ++i) c[n / 2][0][n % 2][i] = sums[n][i];
}
#endif

// c[n][chain] += a . b[n]^T, of 16 rows of a and of 16 rows of b[n], over 16 kSteps columns: sums of b's first eight
// rows and of the others. left(a, step): a's operand of a step, of mma_16x8x16; piece(n, step): the row of
// load_matrices whose result is a step's columns of b[n]. Steps take turns with the chains: instructions of one chain
// wait for each other.
template <int kSteps, int N, int kChains, class LeftOf, class Piece>
NODEWRIGHT_DEVICE void multiply_rows(float (&c)[N][kChains][2][4], const LeftOf& left, const Piece& piece) {
#ifdef __CUDACC_RTC__
  NODEWRIGHT_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    uint32_t a[4];
    left(a, step);
    NODEWRIGHT_UNROLL
    for (int n = 0; n < N; ++n) {
      uint32_t b[4];
      load_matrices(b, piece(n, step));
      mma_16x8x16(c[n][step % kChains][0], a, b[0], b[1]);
      mma_16x8x16(c[n][step % kChains][1], a, b[2], b[3]);
    }
  }
#else
  emulate_rows<kSteps, emulation::Bf16Pieces>(c, left, piece);
#endif
}

// c[n] += a . b[n], of 16 rows of a and 16 columns, which are 16 rows of 8 columns of each b[n]. piece(i): the row of
// load_matrices_transposed whose result is b[2 i], then b[2 i + 1].
template <int N, class Piece>
NODEWRIGHT_DEVICE void multiply_columns(float (&c)[N][4], const uint32_t (&a)[4], const Piece& piece) {
#ifdef __CUDACC_RTC__
  NODEWRIGHT_UNROLL
  for (int i = 0; i < N / 2; ++i) {
    uint32_t b[4];
    load_matrices_transposed(b, piece(i));
    mma_16x8x16(c[2 * i], a, b[0], b[1]);
    mma_16x8x16(c[2 * i + 1], a, b[2], b[3]);
  }
#else
  emulation::multiply_columns(c, a, piece);
#endif
}

// Over the four lanes that share a row of an accumulator.
NODEWRIGHT_DEVICE float quad_max(float v) {
#ifdef __CUDACC_RTC__
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
#else
  return emulation::over_quads(v, [](float a, float b) { return fmaxf(a, b); });
#endif
}
NODEWRIGHT_DEVICE float quad_sum(float v) {
#ifdef __CUDACC_RTC__
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
#else
  return emulation::over_quads(v, [](float a, float b) { return a + b; });
#endif
}

// Two floats to a pair of fp16, to nearest even, `low` at the lower address, and back.
NODEWRIGHT_DEVICE uint32_t round_halves(float low, float high) {
#ifdef __CUDACC_RTC__
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<uint32_t>(to_fp16(low).bits) | static_cast<uint32_t>(to_fp16(high).bits) << 16;
#endif
}
NODEWRIGHT_DEVICE float2 floats_of_halves(uint32_t pair) {
#ifdef __CUDACC_RTC__
  float2 floats;
  asm("{\n\t.reg .b16 p, q;\n\tmov.b32 {p, q}, %2;\n\tcvt.f32.f16 %0, p;\n\tcvt.f32.f16 %1, q;\n\t}"
      : "=f"(floats.x), "=f"(floats.y)
      : "r"(pair));
  return floats;
#else
  return {to_float(fp16{static_cast<uint16_t>(pair)}), to_float(fp16{static_cast<uint16_t>(pair >> 16)})};
#endif
}

// Two floats to a pair of bf16, to nearest even, `low` at the lower address.
NODEWRIGHT_DEVICE uint32_t round_pair(float low, float high) {
#ifdef __CUDACC_RTC__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return pack_bf16(low, high);
#endif
}

// 2^v; results below 2^-126 are 0 (PTX ISA, ex2.approx.ftz: 2^-22 of the result at most).
NODEWRIGHT_DEVICE float power_of_two(float v) {
#ifdef __CUDACC_RTC__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
#else
  return exp2f(v);
#endif
}

// 16-byte copies from global to shared memory that a thread requests now and may read, after a barrier all may, once it
// has waited. kMost: copies of a group; kOpen: groups that have not been waited for. On the CPU driver they are made at
// the wait, so that a missing one shows.
template <int kMost, int kOpen = 2>
struct AsyncCopies {
#ifdef __CUDACC_RTC__
  // Zeros unless `valid`; then `from` is not read.
  NODEWRIGHT_DEVICE void request(void* to, const void* from, bool valid) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
  }
  NODEWRIGHT_DEVICE void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // All groups but the last kLeft have arrived.
  template <int kLeft>
  NODEWRIGHT_DEVICE void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }
#else
  struct Copy {
    void* to;
    const void* from;
  } copies[kOpen][kMost];
  int counts[kOpen] = {};
  int open = 0, oldest = 0, groups = 0;  // open: where requests go

  [[gnu::noinline]] void request(void* to, const void* from, bool valid) {
    copies[open][counts[open]++] = {to, valid ? from : nullptr};
  }
  void close_group() {
    open = (open + 1) % kOpen;
    ++groups;
  }
  template <int kLeft>
  [[gnu::noinline]] void wait() {
    for (; groups > kLeft; --groups, oldest = (oldest + 1) % kOpen) {
      for (int i = 0; i < counts[oldest]; ++i) {
        const Copy& copy = copies[oldest][i];
        store_16(copy.to, copy.from != nullptr ? load_16(copy.from) : uint4{0u, 0u, 0u, 0u});
      }
      counts[oldest] = 0;
    }
  }
#endif
};

}  // namespace nodewright
