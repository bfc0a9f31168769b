// y = f(h . Wgate^T) * (h . Wup^T) or, without a gate, f(h . Wup^T + bias), with h = norm(x): the first half of a
// feed-forward block.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Rows 2i and 2i + 1 of weight are gate i and up i; without a gate row i is up i.
using NormGateUp = Product<ResidualIn, RowsOut<bf16>>;

}  // namespace nodewright
