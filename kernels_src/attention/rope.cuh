// Heads of q and k: normed by themselves in families with kHeadNorm, rotated by their position with kRotate.
// Constants: kHeadDim, kRotate, kHeadNorm, kNorm.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"

namespace nodewright {

constexpr int kHalf = static_cast<int>(kHeadDim / 2);  // elements i and i + kHalf are rotated together

// The sum of the squares of this lane's elements of a head.
NODEWRIGHT_DEVICE float head_squares(const float* head) {
  float squares = 0.0f;
  NODEWRIGHT_UNROLL
  for (int i = static_cast<int>(threadIdx.x % 32); i < kHeadDim; i += 32) squares = fmaf(head[i], head[i], squares);
  return squares;
}

// 1 / rms of a head, of the warp's sum of squares.
NODEWRIGHT_DEVICE float head_scale(float squares, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(kHeadDim) + eps);
}

// scales[h] = 1 / rms of head h, for `heads` heads, Most at most, a warp a head in blocks of so many warps; head_at(h)
// points to its kHeadDim elements. Returns when they are in shared memory.
template <int Most, int Warps, class HeadAt>
NODEWRIGHT_DEVICE void head_scales(float* scales, int heads, float eps, HeadAt head_at) {
  if constexpr (kHeadNorm == 0) return;
  constexpr int kOfWarp = (Most + Warps - 1) / Warps;
  const int warp = static_cast<int>(threadIdx.x / 32);
  float squares[kOfWarp];  // of all heads before the first sum: their elements come at once
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kOfWarp; ++j) squares[j] = warp + j * Warps < heads ? head_squares(head_at(warp + j * Warps)) : 0;
  warp_sums(squares);
  NODEWRIGHT_UNROLL
  for (int j = 0; j < kOfWarp; ++j)
    if (threadIdx.x % 32 == 0 && warp + j * Warps < heads) scales[warp + j * Warps] = head_scale(squares[j], eps);
  __syncthreads();
}

// An element of a head whose scale is `scale`.
NODEWRIGHT_DEVICE float normed_element(float v, float scale, bf16 gain) {
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  return v * (scale * (kOffset + to_float(gain)));
}
// Element i of it.
NODEWRIGHT_DEVICE float normed_element(const float* head, int i, float scale, const bf16* gain) {
  if constexpr (kHeadNorm == 0) return head[i];
  return normed_element(head[i], scale, gain[i]);
}

// (a, b) -> (a cos - b sin, b cos + a sin), the angle in radians.
struct Turn {
  float cosine, sine;
};
NODEWRIGHT_DEVICE Turn turn_of(int position, float frequency) {
  const float angle = static_cast<float>(position) * frequency;
  return {cosf(angle), sinf(angle)};
}
struct Pair {
  float first, second;
};
NODEWRIGHT_DEVICE Pair turned(Pair v, Turn by) {
  // Spelled out, so that every kernel rounds alike.
  return {fmaf(v.first, by.cosine, -(v.second * by.sine)), fmaf(v.second, by.cosine, v.first * by.sine)};
}

}  // namespace nodewright
