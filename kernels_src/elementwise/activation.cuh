// f(v), f an Activation.
#pragma once

#include "kernels_src/device/dialect.cuh"
#include "kernels_src/elementwise/activation.h"

namespace nodewright {

// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: v * Phi(v), exactly or with its tanh approximation.
template <int64_t kFunction>
NODEWRIGHT_DEVICE float activate(float v) {
  if constexpr (kFunction == static_cast<int64_t>(Activation::gelu_erf))
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));  // 1 / sqrt(2)
  if constexpr (kFunction == static_cast<int64_t>(Activation::gelu_tanh))
    return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));  // sqrt(2 / pi)
  if constexpr (kFunction == static_cast<int64_t>(Activation::silu)) return v / (1.0f + expf(-v));
  return v;
}

}  // namespace nodewright
