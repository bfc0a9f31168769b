// Numbers rounded to FP8 (e4m3) codes of one scale.
#pragma once

#include <cstdint>
#include <span>

#include "models/weights/safetensors.h"

namespace nodewright {

// The largest magnitude of `values`, in a row `row` of `tensor`. Throws Error that names both where a value is not
// finite.
float largest_magnitude(std::span<const float> values, const TensorInfo& tensor, int64_t row);

// The scale with which the largest magnitude becomes the largest code: over 448, rounded up to a number that bf16
// holds. transformers keeps scales in the model's dtype, and would round them after the codes. A normal number, also of
// zeros.
float fp8_scale(float largest);
inline float fp8_scale(std::span<const float> values, const TensorInfo& tensor, int64_t row) {
  return fp8_scale(largest_magnitude(values, tensor, row));
}

// codes[i]: values[i] / scale, to nearest, ties to even, at most 448 in magnitude. No value is a NaN.
void round_to_fp8(std::span<const float> values, float scale, uint8_t* codes);

}  // namespace nodewright
