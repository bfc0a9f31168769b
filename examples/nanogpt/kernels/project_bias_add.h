// residual += x . W^T + bias: the attention output and the second half of a feed-forward block of GPT-2 and its kin.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// W: bf16 or float.
template <class W>
struct ProjectBiasAdd {
  In<float> x;                    // [rows, x_stride], rows 16-byte aligned; the first cols elements count
  In<int32_t> n_live;             // [1] rows that count
  Frozen<W> weight;               // [outputs, cols rounded up to 16 bytes], the padding zero
  Optional<Frozen<W>> bias = {};  // [outputs], or empty
  InOut<float> residual;  // [rows, residual_stride]; element (m, n) is touched by the block that owns output n of row m
  int64_t outputs;        // rows of weight
  int64_t x_stride;       // elements between two rows
  int64_t residual_stride;
};

}  // namespace nodewright
