// Heads of q and k: normed in families with kHeadNorm, rotated by their position with kRotate.
// Constants: kHeads, kKvHeads, kHeadDim, kRotate; kHeadNorm: 0 none, 1 each head by itself with one gain for all, 2 all
// heads of q together, and those of k, with gains of their own; kAmplitude: 1 where rotation multiplies, too; kNorm.
#pragma once

#include "kernels_src/attention/width_norm.cuh"

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

constexpr bool kWidthNorm = kHeadNorm == 2;
// Where the gains of head `head`, of all heads of its kind, begin.
NODEWRIGHT_DEVICE int gain_of_head(int head) { return kWidthNorm ? head * static_cast<int>(kHeadDim) : 0; }

// scales[h] = 1 / rms of all heads of q, for h < queries, and scales[queries] = that of all heads of k, by all Warps
// warps of a block. `sums`: [2 * Warps]. Returns when they are in shared memory.
template <int Warps>
NODEWRIGHT_DEVICE void width_scales(float* scales, int queries, float eps, const float* qkv, float* sums) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  float of[2] = {width_squares(qkv, kHeads, static_cast<int>(threadIdx.x), 32 * Warps),
                 width_squares(qkv + kHeads * kHeadDim, kKvHeads, static_cast<int>(threadIdx.x), 32 * Warps)};
  warp_sums(of);
  if (threadIdx.x % 32 == 0) sums[warp] = of[0], sums[Warps + warp] = of[1];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) <= queries) {
    const bool of_key = static_cast<int>(threadIdx.x) == queries;
    float sum = 0.0f;
    for (int w = 0; w < Warps; ++w) sum += sums[(of_key ? Warps : 0) + w];
    scales[threadIdx.x] = width_scale(sum, of_key ? kKvHeads : kHeads, eps);
  }
  __syncthreads();
}

// scales[h] = 1 / rms of head h, for `heads` heads, Most at most, a warp a head, in a block of any number of warps;
// head_at(h) points to its kHeadDim elements. Returns when they are in shared memory.
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

// Element i of a head whose scale is `scale`.
NODEWRIGHT_DEVICE float normed_element(const float* head, int i, float scale, const bf16* gain) {
  if constexpr (kHeadNorm == 0) return head[i];
  return normed_element(head[i], scale, gain[i]);
}

// (a, b) -> (a cos - b sin, b cos + a sin), the angle in radians.
struct Turn {
  float cosine, sine;
};
// How a pair turns: its radians a token and, with kAmplitude, what it is multiplied by.
struct Rotation {
  float frequency, amplitude;
};
// The rotation of pair `pair`; `table`: [kHalf] frequencies, then [kHalf] amplitudes, if any.
NODEWRIGHT_DEVICE Rotation rotation_of(const float* table, int pair) {
  return {table[pair], kAmplitude != 0 ? table[kHalf + pair] : 1.0f};
}
NODEWRIGHT_DEVICE Turn turn_of(int position, Rotation rotation) {
  const float angle = static_cast<float>(position) * rotation.frequency;
  if constexpr (kAmplitude != 0) return {rotation.amplitude * cosf(angle), rotation.amplitude * sinf(angle)};
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
