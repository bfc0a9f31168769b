// y = f(x . Wgate^T) * (x . Wup^T) or, without a gate, f(x . Wup^T + bias): the first half of a feed-forward block
// whose rows a kernel before has normed.
#pragma once

#include "kernels_src/argument_blocks.h"

namespace nodewright {

// Rows 2i and 2i + 1 of weight are gate i and up i; without a gate row i is up i.
using ProjectGateUp = Product<RowsIn, RowsOut<bf16>>;

}  // namespace nodewright
