// y = x . W^T + bias: the attention output and the down projection where a norm comes before the residual sum.
#pragma once

#include "kernels_src/argument_blocks.h"

namespace nodewright {

using Project = Product<RowsIn, RowsOut<float>>;

}  // namespace nodewright
