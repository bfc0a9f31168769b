// Heads of q and k: normed by themselves in families with kHeadNorm, rotated by their position with kRotate.
// Constants: kHeadDim, kRotate, kHeadNorm, kNorm.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/norm.h"

namespace nodewright {

constexpr int kHalf = static_cast<int>(kHeadDim / 2);  // elements i and i + kHalf are rotated together

// 1 / rms of a head, by a whole warp.
NODEWRIGHT_DEVICE float head_scale(const float* head, float eps) {
  float squares = 0.0f;
  for (int i = static_cast<int>(threadIdx.x % 32); i < kHeadDim; i += 32) squares = fmaf(head[i], head[i], squares);
  return 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(kHeadDim) + eps);
}

// scales[h] = head_scale(head h) for `heads` heads, a warp a head; head_at(h) points to its kHeadDim elements. Returns
// when they are in shared memory.
template <class HeadAt>
NODEWRIGHT_DEVICE void head_scales(float* scales, int heads, float eps, HeadAt head_at) {
  if constexpr (kHeadNorm == 0) return;
  const int warp = static_cast<int>(threadIdx.x / 32);
  for (int h = warp; h < heads; h += static_cast<int>(blockDim.x / 32)) {
    const float scale = head_scale(head_at(h), eps);
    if (threadIdx.x % 32 == 0) scales[h] = scale;
  }
  __syncthreads();
}

// Element i of a head whose scale is `scale`.
NODEWRIGHT_DEVICE float normed_element(const float* head, int i, float scale, const bf16* gain) {
  if constexpr (kHeadNorm == 0) return head[i];
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  return head[i] * (scale * (kOffset + to_float(gain[i])));
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
