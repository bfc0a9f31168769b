// Rows of x times rows of W over a span of 64 columns: one warp, words of which lane (g, t) holds eight columns of each
// of two steps (tile_stream.cuh). The one place where tiles know a device from the CPU driver.
#pragma once

#include "kernels_src/device/tensor.cuh"

namespace nodewright {

// Sums of 16 rows of x with the tile's first 8 rows of W and with its others. A tile of 8 rows has none: then sums of
// the first and second half of every word, two short chains of dependent instructions in place of one long one.
struct PairSums {
  float upper[4], lower[4];
};

#ifdef __CUDACC_RTC__
constexpr bool kCanTurn = true;  // W may be the left operand

// A lane's words of a span of x's row g, those of both steps, in two parts: a warp requests whole lines of 128 bytes,
// of an even row in both halves of a pair of lanes' g, then of an odd one, and arrange_span() hands each lane the word
// of step 1 that its neighbour has got. load(g, word): the word-th 16 bytes of a span of row g, of which lane (g, t)
// has kLane * t + kStep * s in step s.
template <int kStep, int kLane, class Load>
NODEWRIGHT_DEVICE void request_span(uint4& first, uint4& second, const Load& load) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4 * kLane, odd = g % 2 * kStep;
  first = load(g & ~1, t + odd);
  second = load(g | 1, t + kStep - odd);
}
NODEWRIGHT_DEVICE void arrange_span(uint4& first, uint4& second) {
  const bool odd = lane_of_warp() / 4 % 2 != 0;
  const auto exchange = [odd](uint32_t& own, uint32_t& other) {
    const uint32_t sent = odd ? own : other;
    own = odd ? other : own;
    other = __shfl_xor_sync(0xffffffffu, sent, 4);
  };
  exchange(first.x, second.x), exchange(first.y, second.y), exchange(first.z, second.z), exchange(first.w, second.w);
}

// sums += x . W over a step, of the rows of x in two words
template <int kRows, bool kHalves>
NODEWRIGHT_DEVICE void multiply_step(PairSums& sums, uint4 upper, uint4 lower, uint4 x, uint4 x_8) {
  const uint32_t first[4] = {x.x, x_8.x, x.y, x_8.y}, second[4] = {x.z, x_8.z, x.w, x_8.w};
  multiply_operands<kHalves>(sums.upper, first, upper.x, upper.y);
  if constexpr (kRows == 16) multiply_operands<kHalves>(sums.lower, first, lower.x, lower.y);
  multiply_operands<kHalves>(kRows == 16 ? sums.upper : sums.lower, second, upper.z, upper.w);
  if constexpr (kRows == 16) multiply_operands<kHalves>(sums.lower, second, lower.z, lower.w);
}

// The same with 16 rows of W as the left operand and 8 rows of x as the right one: half the instructions. The
// sums of lane (g, t) are those of W's row g with x's rows 2t and 2t + 1, then of row g + 8.
template <bool kHalves>
NODEWRIGHT_DEVICE void multiply_turned_step(float (&sums)[4], uint4 upper, uint4 lower, uint4 x) {
  const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
  multiply_operands<kHalves>(sums, first, x.x, x.y);
  multiply_operands<kHalves>(sums, second, x.z, x.w);
}
// sums.upper += x . W over a span's steps from kFirst to kLast - 1, in multiply_span's order.
template <bool kHalves, int kFirst = 0, int kLast = 2, class Weights, class X>
NODEWRIGHT_DEVICE void multiply_turned_span(PairSums& sums, const Weights& weights, const X& x) {
  const int g = lane_of_warp() / 4;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int s = kFirst; s < kLast; ++s)
    multiply_turned_step<kHalves>(sums.upper, weights(s, g), weights(s, g + 8), x(s, 0));
}

// sums += x . W, over the same steps. kRows of W, 8 or 16; kTiles of 8 rows of x, two to a PairSums. weights(s, row):
// this lane's word of step s, of W's row g or g + 8; x(s, n): of x's row g + 8 n. kHalves: of fp16 in place of bf16.
template <int kRows, int kTiles, bool kHalves, int kFirst = 0, int kLast = 2, class Weights, class X>
NODEWRIGHT_DEVICE void multiply_span(PairSums (&sums)[(kTiles + 1) / 2], const Weights& weights, const X& x) {
  const int g = lane_of_warp() / 4;
  NODEWRIGHT_UNROLL_ON_DEVICE
  for (int s = kFirst; s < kLast; ++s) {
    const uint4 upper = weights(s, g), lower = kRows == 16 ? weights(s, g + 8) : uint4{0u, 0u, 0u, 0u};
    NODEWRIGHT_UNROLL_ON_DEVICE
    for (int p = 0; p < (kTiles + 1) / 2; ++p)
      multiply_step<kRows, kHalves>(sums[p], upper, lower, x(s, 2 * p),
                                    2 * p + 1 < kTiles ? x(s, 2 * p + 1) : uint4{0u, 0u, 0u, 0u});
  }
}
#else
constexpr bool kCanTurn = false;

template <int kStep, int kLane, class Load>
void request_span(uint4& first, uint4& second, const Load& load) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4 * kLane;
  first = load(g, t), second = load(g, t + kStep);
}
inline void arrange_span(uint4&, uint4&) {}
template <bool kHalves, int kFirst = 0, int kLast = 2, class Weights, class X>
void multiply_turned_span(PairSums&, const Weights&, const X&) {}  // of a device alone

namespace emulation {

// What a lane brings: zeros for rows that no tile has.
template <int kPairs>
struct SpanLane {
  PairSums* sums;         // [kPairs]
  uint4 weights[2][2];    // [2 steps][rows g, g + 8]
  uint4 x[2][kPairs][2];  // [2 steps][kPairs][rows g, g + 8]
};

template <int kRows, int kPairs>
NODEWRIGHT_VECTORIZED void multiply_span_of(SpanLane<kPairs>* const* lanes) {
  for (int p = 0; p < kPairs; ++p)
    for (int other = 0; other < 2; ++other) {
      const int below = kRows == 16 ? other : 0;
      const auto sums = [&](int lane) { return other == 0 ? lanes[lane]->sums[p].upper : lanes[lane]->sums[p].lower; };
      Sums16x8 c;
      take_sums(c, sums);
      // A step is 16 columns: half a lane's words.
      for (int step = kRows == 16 ? 0 : other; step < 4; step += kRows == 16 ? 1 : 2) {
        const auto word = [&](const uint4& words, int i) {
          uint32_t held[4];
          __builtin_memcpy(held, &words, 16);
          return held[step % 2 * 2 + i];
        };
        Left a;
        Right b;
        take_left(a, [&](int lane, int i) { return word(lanes[lane]->x[step / 2][p][i % 2], i / 2); });
        take_right(b, [&](int lane, int i) { return word(lanes[lane]->weights[step / 2][below], i); });
        multiply(c, a, b);
      }
      give_sums(c, sums);
    }
}

}  // namespace emulation

template <int kRows, int kTiles, bool kHalves, int kFirst = 0, int kLast = 2, class Weights, class X>
void multiply_span(PairSums (&sums)[(kTiles + 1) / 2], const Weights& weights, const X& x) {
  static_assert(!kHalves);
  using Lane = emulation::SpanLane<(kTiles + 1) / 2>;
  Lane mine{sums, {}, {}};
  const int g = lane_of_warp() / 4;
  for (int s = kFirst; s < kLast; ++s) {  // zeros in others
    for (int below = 0; below < kRows / 8; ++below) mine.weights[s][below] = weights(s, g + 8 * below);
    for (int n = 0; n < kTiles; ++n) mine.x[s][n / 2][n % 2] = x(s, n);
  }
  emulation::with_warp(0xffffffffu, mine, [](Lane* const* lanes, uint32_t) {
    emulation::multiply_span_of<kRows, (kTiles + 1) / 2>(lanes);
  });
}
#endif

}  // namespace nodewright
