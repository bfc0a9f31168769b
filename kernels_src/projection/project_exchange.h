// project_add of one rank of a team: each rank multiplies its columns of x and of the weight, and the sums of all ranks
// join the residual, or stand by themselves for a norm.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Takes part in one exchange of rows * outputs values. Constants: kRanks, the number of ranks; kAdds: 1 where the sums
// join the residual; of tiles (tile/tile_project_exchange.cu) also kLeavesGained, with kAdds alone. All blocks run at
// once.
struct ProjectExchange {
  static constexpr bool kIsFlat = true;
  RowsIn from;
  WeightIn w;  // the rank's columns, and the bias of one rank
  SumOut to;
  In<int32_t> n_live;  // [1] rows that count, the same on all ranks; not read at bucket 1
  Exchange exchange;   // packet m * outputs + n: row m, output n
};

}  // namespace nodewright
