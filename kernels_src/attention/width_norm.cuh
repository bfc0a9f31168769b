// The norm over several heads of a row at once, and an element that such a norm, or one of a single head, has normed.
// Constants: kHeadDim, kNorm.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/residual/norm.h"

namespace nodewright {

// 1 / rms of a strip of elements, of the sum of squares.
NODEWRIGHT_DEVICE float width_scale(float squares, int64_t heads, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(heads * kHeadDim) + eps);
}
// The sum of the squares of every `threads`-th element of `heads` heads from this thread's on.
NODEWRIGHT_DEVICE float width_squares(const float* heads_of, int64_t heads, int thread, int threads) {
  float squares = 0.0f;
  NODEWRIGHT_UNROLL_BY(8)
  for (int i = thread; i < heads * kHeadDim; i += threads) squares = fmaf(heads_of[i], heads_of[i], squares);
  return squares;
}

// An element of a head whose scale is `scale`.
NODEWRIGHT_DEVICE float normed_element(float v, float scale, bf16 gain) {
  constexpr float kOffset = kNorm == static_cast<int64_t>(Norm::rms_one_plus) ? 1.0f : 0.0f;
  return v * (scale * (kOffset + to_float(gain)));
}

}  // namespace nodewright
