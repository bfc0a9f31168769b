// The matrix instructions of device/tensor.cuh for the CPU driver: every lane brings its operands, and the last one to
// arrive multiplies for all. Each sum takes its products one at a time, k rising. Of what the lanes bring, the kernel's
// shared memory has been read before.
#pragma once

#include "kernels_src/device/numeric.cuh"

// Vectorized, which images otherwise are not, and outside the checks: it touches the lanes' stacks alone.
#define NODEWRIGHT_VECTORIZED [[gnu::noinline, gnu::optimize("O3"), gnu::no_sanitize("thread")]] inline

namespace nodewright::emulation {

// The operands of c [16, 8] += a [16, 16] . b [16, 8].
using Left = float[16][16];
using Right = float[16][8];
using Sums16x8 = float[16][8];

NODEWRIGHT_VECTORIZED void multiply(Sums16x8& c, const Left& a, const Right& b) {
  for (int row = 0; row < 16; ++row) {
    float sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = c[row][i];
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 8; ++i) sums[i] = fmaf(a[row][k], b[k][i], sums[i]);
    for (int i = 0; i < 8; ++i) c[row][i] = sums[i];
  }
}

[[gnu::always_inline]] inline float bf16_at(const void* packed, int i) {
  uint16_t bits;
  __builtin_memcpy(&bits, static_cast<const char*>(packed) + 2 * i, 2);
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

// word(lane, i): word i of four of a lane's left operand.
template <class Word>
[[gnu::always_inline]] inline void take_left(Left& a, Word word) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = word(lane, i);
      float* to = a[lane / 4 + i % 2 * 8] + lane % 4 * 2 + i / 2 * 8;
      to[0] = low_bf16(pair), to[1] = high_bf16(pair);
    }
}
// Emulates two of its right operand.
template <class Word>
[[gnu::always_inline]] inline void take_right(Right& b, Word word) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair = word(lane, i);
      b[lane % 4 * 2 + i * 8][lane / 4] = low_bf16(pair);
      b[lane % 4 * 2 + i * 8 + 1][lane / 4] = high_bf16(pair);
    }
}
// fragment(lane): its four sums.
template <class Fragment>
[[gnu::always_inline]] inline void take_sums(Sums16x8& c, Fragment fragment) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = fragment(lane)[i];
}
template <class Fragment>
[[gnu::always_inline]] inline void give_sums(const Sums16x8& c, Fragment fragment) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) fragment(lane)[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

struct MatrixLane {
  uint4 row;
  uint32_t* v;
};
NODEWRIGHT_VECTORIZED void give_matrices(MatrixLane* const* lanes) {
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m)
      __builtin_memcpy(lanes[lane]->v + m, reinterpret_cast<const char*>(&lanes[m * 8 + lane / 4]->row) + lane % 4 * 4,
                       4);
}
inline void load_matrices(uint32_t (&v)[4], uint4 row) {
  MatrixLane mine{row, v};
  with_warp(0xffffffffu, mine, [](MatrixLane* const* lanes, uint32_t) { give_matrices(lanes); });
}

template <int N, int K>
struct RowsLane {
  float (*c)[4];
  const uint32_t (*a)[4];
  const uint4 (*pieces)[K];  // [N / 2]
};
template <int N, int K>
NODEWRIGHT_VECTORIZED void multiply_rows_of(RowsLane<N, K>* const* lanes) {
  Left a[K];
  for (int k = 0; k < K; ++k) take_left(a[k], [&](int lane, int i) { return lanes[lane]->a[k][i]; });
  for (int n = 0; n < N; ++n) {
    const auto sums = [&](int lane) { return lanes[lane]->c[n]; };
    Sums16x8 c;
    take_sums(c, sums);
    for (int k = 0; k < K; ++k) {
      Right b;
      for (int half = 0; half < 2; ++half)
        for (int column = 0; column < 8; ++column) {
          const uint4& piece = lanes[n % 2 * 16 + half * 8 + column]->pieces[n / 2][k];
          for (int i = 0; i < 8; ++i) b[half * 8 + i][column] = bf16_at(&piece, i);
        }
      multiply(c, a[k], b);
    }
    give_sums(c, sums);
  }
}
// c[n] += a . b[n]^T, a [16, 16 K] as a left operand, b[n] 8 rows of 16 K columns in shared memory. piece(i, k): the
// row of load_matrices whose result is columns 16 k to 16 k + 15 of b[2 i], then of b[2 i + 1].
template <int N, int K, class Piece>
[[gnu::noinline]] void multiply_rows(float (&c)[N][4], const uint32_t (&a)[K][4], Piece piece) {
  uint4 pieces[N / 2][K];
  for (int i = 0; i < N / 2; ++i)
    for (int k = 0; k < K; ++k) pieces[i][k] = load_16(piece(i, k));
  RowsLane<N, K> mine{c, a, pieces};
  with_warp(0xffffffffu, mine, [](RowsLane<N, K>* const* lanes, uint32_t) { multiply_rows_of(lanes); });
}

template <int N>
struct ColumnsLane {
  float (*c)[4];
  const uint32_t* a;
  const uint4* pieces;  // [N / 2]
};
template <int N>
NODEWRIGHT_VECTORIZED void multiply_columns_of(ColumnsLane<N>* const* lanes) {
  Left a;
  take_left(a, [&](int lane, int i) { return lanes[lane]->a[i]; });
  for (int n = 0; n < N; ++n) {
    const auto sums = [&](int lane) { return lanes[lane]->c[n]; };
    Sums16x8 c;
    take_sums(c, sums);
    Right b;
    for (int k = 0; k < 16; ++k) {
      const uint4& piece = lanes[n % 2 * 16 + k]->pieces[n / 2];
      for (int i = 0; i < 8; ++i) b[k][i] = bf16_at(&piece, i);
    }
    multiply(c, a, b);
    give_sums(c, sums);
  }
}
// c[n] += a . b[n], a [16, 16], b[n] 16 rows of 8 columns in shared memory. piece(i): the row of a transposed load of
// matrices whose result is b[2 i], then b[2 i + 1].
template <int N, class Piece>
[[gnu::noinline]] void multiply_columns(float (&c)[N][4], const uint32_t (&a)[4], Piece piece) {
  uint4 pieces[N / 2];
  for (int i = 0; i < N / 2; ++i) pieces[i] = load_16(piece(i));
  ColumnsLane<N> mine{c, a, pieces};
  with_warp(0xffffffffu, mine, [](ColumnsLane<N>* const* lanes, uint32_t) { multiply_columns_of(lanes); });
}

// As two exchanges would give it: with the neighbour first, then with the other pair.
template <class Combine>
float over_quads(float v, Combine) {
  with_warp(0xffffffffu, v, [](float* const* lanes, uint32_t) {
    for (int distance = 1; distance < 4; distance *= 2) {
      float before[32];
      for (int lane = 0; lane < 32; ++lane) before[lane] = *lanes[lane];
      for (int lane = 0; lane < 32; ++lane) *lanes[lane] = Combine{}(before[lane], before[lane ^ distance]);
    }
  });
  return v;
}

}  // namespace nodewright::emulation
