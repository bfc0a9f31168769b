// residual += (x . W^T + bias) * kScale: the attention output and the down projection, with the residual sum in the
// epilogue.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

using ProjectAdd = Product<RowsIn, AddTo>;

}  // namespace nodewright
