// How a projection with bias is laid over the GPU: a group of lanes owns an output, a block a contiguous range of them.
// Host only; the kernels get the same numbers as named constants (row_dot.cuh).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/launch_shape.h"

namespace nodewright {

// y[rows, outputs] = x[rows, cols] . W[outputs, cols]^T + bias; W in bf16 or float.
struct ProjectionShape {
  int64_t rows = 1;
  int64_t cols = 0;          // elements of x that count
  int64_t outputs = 0;       // rows of W
  int64_t weight_bytes = 4;  // of one element: 2 (bf16) or 4 (float)

  static constexpr int64_t kThreads = 128;
  static constexpr int64_t kBlocksPerSm = 2;  // as MatvecShape's: the next kernel's weights are requested meanwhile

  constexpr int64_t elements() const { return 16 / weight_bytes; }  // of one load
  // Elements between two rows of W: whole 16-byte loads, the padding zero.
  constexpr int64_t stride() const { return (cols + elements() - 1) / elements() * elements(); }
  // Lanes that share an output: one load each if that is enough for a row, at most a warp.
  constexpr int64_t lanes() const {
    int64_t n = 1;
    while (n < 32 && n * elements() < cols) n *= 2;
    return n;
  }
  constexpr int64_t groups() const { return kThreads / lanes(); }  // outputs that a block works on at once

  constexpr LaunchShape launch_shape(int64_t sm_count) const {
    const int64_t blocks = std::min((outputs + groups() - 1) / groups(), kBlocksPerSm * sm_count);
    return {
        {static_cast<unsigned>(blocks), static_cast<unsigned>(rows), 1}, {static_cast<unsigned>(kThreads), 1, 1}, 0};
  }
};

}  // namespace nodewright
