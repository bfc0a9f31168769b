// Elements of a weight file as bf16, which is what the kernels read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels_src/args.h"
#include "models/weights/safetensors.h"

namespace nodewright {

// `count` elements of BF16, F16 or F32, at any alignment, to bf16: round to nearest even; a NaN stays one.
void convert_to_bf16(Dtype dtype, const std::byte* from, bf16* to, int64_t count);
// The same elements as floats, which they all are.
void convert_to_floats(Dtype dtype, const std::byte* from, float* to, int64_t count);

}  // namespace nodewright
