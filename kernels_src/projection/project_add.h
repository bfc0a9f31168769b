// residual += x . W^T + bias: the attention output and the down projection, with the residual sum in the epilogue.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct ProjectAdd {
  In<bf16> x;                        // [rows, x_stride], the first cols elements of a row count
  Frozen<bf16> weight;               // [outputs, stride]
  Optional<Frozen<bf16>> bias = {};  // [outputs], or empty
  InOut<float> residual;  // [rows, residual_stride]; element (m, n) is touched by the block that owns output n
  In<int32_t> n_live;     // [1] rows that count; not read at bucket 1
  int64_t outputs;        // rows of weight
  int64_t x_stride;       // elements between two rows of x
  int64_t residual_stride;
  ResidualOut next;  // of tiles (product/tiles/tile_gained_rows.cuh); its columns are the outputs
};

}  // namespace nodewright
