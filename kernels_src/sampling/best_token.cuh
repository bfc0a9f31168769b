// The best of many scores: the largest, of equals the first.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/sampling/scored_token.h"

namespace nodewright {

NODEWRIGHT_DEVICE ScoredToken better(ScoredToken a, ScoredToken b) {
  if (b.token < 0) return a;
  if (a.token < 0) return b;
  if (a.score != b.score) return a.score > b.score ? a : b;
  return a.token < b.token ? a : b;
}

constexpr int kNotANumber = -2;  // in place of a token, and not replaced

// Keeps the best of scores that come in ascending order of their tokens.
NODEWRIGHT_DEVICE void keep_best(ScoredToken& best, float v, int token) {
  if (v != v) best.token = kNotANumber;
  if (best.token == kNotANumber) return;
  if (v > best.score || best.token < 0) best = ScoredToken{v, token};
}

// The best of the warp, in every lane.
NODEWRIGHT_DEVICE ScoredToken warp_best(ScoredToken mine) {
  NODEWRIGHT_UNROLL
  for (int offset = 16; offset > 0; offset /= 2) {
    const ScoredToken other{__shfl_xor_sync(0xffffffffu, mine.score, offset),
                            __shfl_xor_sync(0xffffffffu, mine.token, offset)};
    mine = better(mine, other);
  }
  return mine;
}

// The best choice of a block of `Warps` warps, in every thread. `scratch`: 32 ScoredTokens.
template <int Warps>
NODEWRIGHT_DEVICE ScoredToken block_best(ScoredToken mine, ScoredToken* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  mine = warp_best(mine);
  if (lane == 0) scratch[warp] = mine;
  __syncthreads();
  ScoredToken best = scratch[0];
  for (int w = 1; w < Warps; ++w) best = better(best, scratch[w]);
  __syncthreads();
  return best;
}

// The better of two parts of a row, either of which may have a NaN.
NODEWRIGHT_DEVICE ScoredToken better_part(ScoredToken a, ScoredToken b) {
  if (a.token == kNotANumber || b.token == kNotANumber) return ScoredToken{a.score, kNotANumber};
  return better(a, b);
}

// The best of a warp, and of a block of `Warps` warps, in every thread; kNotANumber where one of the threads has it.
// Not inlined. `scratch`: 32 ScoredTokens.
NODEWRIGHT_CALLED ScoredToken best_of_warp(ScoredToken best) {
  const bool has_nan = __any_sync(0xffffffffu, best.token == kNotANumber) != 0;
  NODEWRIGHT_NO_UNROLL
  for (int offset = 16; offset > 0; offset /= 2)
    best = better(best, ScoredToken{__shfl_xor_sync(0xffffffffu, best.score, offset),
                                    __shfl_xor_sync(0xffffffffu, best.token, offset)});
  return has_nan ? ScoredToken{best.score, kNotANumber} : best;
}
template <int Warps>
NODEWRIGHT_CALLED ScoredToken best_of_block(ScoredToken best, ScoredToken* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  best = best_of_warp(best);
  if (lane == 0) scratch[threadIdx.x / 32] = best;
  __syncthreads();
  best = best_of_warp(lane < Warps ? scratch[lane] : ScoredToken{-INFINITY, -1});
  __syncthreads();
  return best;
}

}  // namespace nodewright
