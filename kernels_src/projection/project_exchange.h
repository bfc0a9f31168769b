// project_add of one rank of a team: each rank multiplies its columns of x and of the weight, and the sums of all ranks
// join the residual, or stand by themselves for a norm.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Takes part in one exchange of rows * outputs values. Constants: kRanks, the number of ranks; kAdds: 1 where the sums
// join the residual; of tiles (tile/tile_project_exchange.cu) also kLeavesGained, with kAdds alone. All blocks run at
// once.
struct ProjectExchange {
  In<bf16> x;                            // [rows, x_stride], the first cols elements of a row count
  Frozen<bf16> weight;                   // [outputs, stride] the rank's columns
  Optional<Frozen<bf16>> bias = {};      // [outputs], of one rank; or empty
  Optional<InOut<float>> residual = {};  // [rows, residual_stride] the same on all ranks; empty if kAdds is 0
  Optional<PartialOut<float>> y = {};    // [rows, residual_stride]; empty if kAdds is 1
  In<int32_t> n_live;                    // [1] rows that count, the same on all ranks; not read at bucket 1
  int64_t outputs;                       // rows of weight
  int64_t x_stride;                      // elements between two rows of x
  int64_t residual_stride;
  ResidualOut next;   // of tiles (product/tiles/tile_gained_rows.cuh); its columns are the outputs
  Exchange exchange;  // packet m * outputs + n: row m, output n
};

}  // namespace nodewright
