// How project_exchange is laid over a GPU: as project_add, with registers left for the exchange. Host only.
#pragma once

#include "kernels_src/product/rows/matvec_shape.h"

namespace nodewright {

// `shape` with half its weight rows in flight where a block has several rows of x: NVRTC 13.0 spills 4 to 28 bytes a
// thread otherwise (tests/graph/team/exchange_kernels_test.cpp). Of one row it is `shape`.
constexpr MatvecShape project_exchange_shape(MatvecShape shape) {
  if (shape.tile() > 1 && shape.tuning.batch == 0) shape.tuning.batch = shape.batch() > 1 ? shape.batch() / 2 : 1;
  return shape;
}

}  // namespace nodewright
