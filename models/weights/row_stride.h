// How far apart the rows of a matrix lie.
#pragma once

#include <cstdint>

namespace nodewright {

// Elements: a multiple of 8, so that each row of bf16 begins at a multiple of 16 bytes, what kernels load at once.
constexpr int64_t row_stride(int64_t columns) { return (columns + 7) / 8 * 8; }

}  // namespace nodewright
