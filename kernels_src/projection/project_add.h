// residual += x . W^T + bias: the attention output and the down projection, with the residual sum in the epilogue.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ProjectAdd {
  In<bf16> x;                   // [rows, x_stride], the first cols elements of a row count
  Frozen<bf16> weight;          // [outputs, stride]
  Optional<Frozen<bf16>> bias;  // [outputs], or empty
  InOut<float> residual;        // [rows, residual_stride]; element (m, n) is touched by the block that owns output n
  In<int32_t> n_live;           // [1] rows that count; not read at bucket 1
  int64_t outputs;              // rows of weight
  int64_t x_stride;             // elements between two rows of x
  int64_t residual_stride;

  // In tiles, for kernels that norm the sum next (kLeavesGained, tile/tile_gained_rows.cuh); else empty.
  Optional<Frozen<bf16>> next_gain;  // [outputs] of their norm
  Optional<Out<bf16>> gained;        // [rows, outputs] the sums times that gain
  Optional<Out<float>> squares;      // [blocks, rows rounded up to 8] of the sums, of each block's outputs
};

}  // namespace nodewright
