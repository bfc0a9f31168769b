// The matrix instructions of device/tensor.cuh for the CPU driver: every lane brings its operands, and the last one to
// arrive multiplies for all. Each sum takes its products one at a time, k rising. Of what the lanes bring, the kernel's
// shared memory has been read before.
#pragma once

#include "kernels_src/device/fp8.cuh"

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

// What the right operands are in shared memory, and which lane's piece of 16 bytes, which of its pieces, and which
// element of it has column k of step `step` (multiply_rows), or column i of c[n] (multiply_columns).
#define NODEWRIGHT_INLINED [[gnu::always_inline]] static constexpr
struct Bf16Pieces {
  NODEWRIGHT_INLINED int loads(int steps) { return steps; }
  NODEWRIGHT_INLINED int row_half(int, int k) { return k / 8; }
  NODEWRIGHT_INLINED int row_load(int step) { return step; }
  NODEWRIGHT_INLINED int row_element(int k) { return k % 8; }
  NODEWRIGHT_INLINED int column_half(int n) { return n % 2; }
  NODEWRIGHT_INLINED int column_load(int n) { return n / 2; }
  NODEWRIGHT_INLINED int column_element(int, int i) { return i; }
  [[gnu::always_inline]] static float at(const uint4* piece, int i) { return bf16_at(piece, i); }
  [[gnu::always_inline]] static float low(uint32_t pair) { return low_bf16(pair); }
  [[gnu::always_inline]] static float high(uint32_t pair) { return high_bf16(pair); }
};
// A piece of FP8, whose left operand is fp16, is 16 elements, columns of two steps or of two c[n]. Column k of a step
// and c[n] have them in the order in which lanes find their own side by side (attention/cache_format.cuh).
struct Fp8Pieces {
  NODEWRIGHT_INLINED int loads(int steps) { return (steps + 1) / 2; }
  NODEWRIGHT_INLINED int row_half(int step, int) { return step % 2; }
  NODEWRIGHT_INLINED int row_load(int step) { return step / 2; }
  NODEWRIGHT_INLINED int row_element(int k) { return k % 8 / 2 * 4 + k / 8 * 2 + k % 2; }
  NODEWRIGHT_INLINED int column_half(int n) { return n / 2 % 2; }
  NODEWRIGHT_INLINED int column_load(int n) { return n / 4; }
  NODEWRIGHT_INLINED int column_element(int n, int i) { return i * 2 + n % 2; }
  [[gnu::always_inline]] static float at(const uint4* piece, int i) {
    return to_float(fp8{reinterpret_cast<const uint8_t*>(piece)[i]});
  }
  [[gnu::always_inline]] static float low(uint32_t pair) { return to_float(fp16{static_cast<uint16_t>(pair)}); }
  [[gnu::always_inline]] static float high(uint32_t pair) { return low(pair >> 16); }
};
#undef NODEWRIGHT_INLINED

// word(lane, i): word i of four of a lane's left operand.
template <class Pieces = Bf16Pieces, class Word>
[[gnu::always_inline]] inline void take_left(Left& a, Word word) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = word(lane, i);
      float* to = a[lane / 4 + i % 2 * 8] + lane % 4 * 2 + i / 2 * 8;
      to[0] = Pieces::low(pair), to[1] = Pieces::high(pair);
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

template <int N, int K, class Pieces>
struct RowsLane {
  float (*c)[4];
  const uint32_t (*a)[4];
  const uint4 (*pieces)[Pieces::loads(K)];  // [N / 2]
};
template <int N, int K, class Pieces>
NODEWRIGHT_VECTORIZED void multiply_rows_of(RowsLane<N, K, Pieces>* const* lanes) {
  Left a[K];
  for (int k = 0; k < K; ++k) take_left<Pieces>(a[k], [&](int lane, int i) { return lanes[lane]->a[k][i]; });
  for (int n = 0; n < N; ++n) {
    const auto sums = [&](int lane) { return lanes[lane]->c[n]; };
    Sums16x8 c;
    take_sums(c, sums);
    for (int k = 0; k < K; ++k) {
      Right b;
      for (int part = 0; part < 16; part += 8)
        for (int column = 0; column < 8; ++column) {
          const uint4& piece =
              lanes[n % 2 * 16 + Pieces::row_half(k, part) * 8 + column]->pieces[n / 2][Pieces::row_load(k)];
          for (int i = part; i < part + 8; ++i) b[i][column] = Pieces::at(&piece, Pieces::row_element(i));
        }
      multiply(c, a[k], b);
    }
    give_sums(c, sums);
  }
}
// c[n] += a . b[n]^T, a [16, 16 K] as a left operand, b[n] 8 rows of 16 K columns in shared memory. piece(i, k): the
// row of load_matrices whose result is columns 16 k to 16 k + 15 of b[2 i], then of b[2 i + 1]; of other Pieces as they
// say.
template <int N, int K, class Pieces = Bf16Pieces, class Piece>
[[gnu::noinline]] void multiply_rows(float (&c)[N][4], const uint32_t (&a)[K][4], Piece piece) {
  uint4 pieces[N / 2][Pieces::loads(K)];
  for (int i = 0; i < N / 2; ++i)
    for (int k = 0; k < Pieces::loads(K); ++k) pieces[i][k] = load_16(piece(i, k));
  RowsLane<N, K, Pieces> mine{c, a, pieces};
  with_warp(0xffffffffu, mine, [](RowsLane<N, K, Pieces>* const* lanes, uint32_t) { multiply_rows_of(lanes); });
}

template <int N, class Pieces>
struct ColumnsLane {
  float (*c)[4];
  const uint32_t* a;
  const uint4* pieces;  // [Pieces::loads(N / 2)]
};
template <int N, class Pieces>
NODEWRIGHT_VECTORIZED void multiply_columns_of(ColumnsLane<N, Pieces>* const* lanes) {
  Left a;
  take_left<Pieces>(a, [&](int lane, int i) { return lanes[lane]->a[i]; });
  for (int n = 0; n < N; ++n) {
    const auto sums = [&](int lane) { return lanes[lane]->c[n]; };
    Sums16x8 c;
    take_sums(c, sums);
    Right b;
    for (int k = 0; k < 16; ++k) {
      const uint4& piece = lanes[Pieces::column_half(n) * 16 + k]->pieces[Pieces::column_load(n)];
      for (int i = 0; i < 8; ++i) b[k][i] = Pieces::at(&piece, Pieces::column_element(n, i));
    }
    multiply(c, a, b);
    give_sums(c, sums);
  }
}
// c[n] += a . b[n], a [16, 16], b[n] 16 rows of 8 columns in shared memory. piece(i): the row of a transposed load of
// matrices whose result is b[2 i], then b[2 i + 1]; of other Pieces as they say.
template <int N, class Pieces = Bf16Pieces, class Piece>
[[gnu::noinline]] void multiply_columns(float (&c)[N][4], const uint32_t (&a)[4], Piece piece) {
  uint4 pieces[Pieces::loads(N / 2)];
  for (int i = 0; i < Pieces::loads(N / 2); ++i) pieces[i] = load_16(piece(i));
  ColumnsLane<N, Pieces> mine{c, a, pieces};
  with_warp(0xffffffffu, mine, [](ColumnsLane<N, Pieces>* const* lanes, uint32_t) { multiply_columns_of(lanes); });
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
