// How shrink and norm_shrink are laid over the GPU: a block has one row of x and a range of ranks. Host only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels_src/launch_shape.h"
#include "kernels_src/product/rows/matvec_shape.h"

namespace nodewright {

// Constants: those of product/rows/matvec.cuh for one row of x a block, kAdapterRank.
struct ShrinkShape {
  int64_t rows = 1, cols = 0, stride = 0;
  int64_t ranks = 0;  // rows of A
  bool normed = false;

  static constexpr int64_t kDimensionsOfBlock = 8;  // of more rows than one

  constexpr MatvecShape matvec() const {
    MatvecShape shape{3, cols, stride, ranks, 1, normed};  // any odd number: a block has one row of x
    shape.tuning.batch = std::min(shape.batch(), kDimensionsOfBlock);
    shape.of_block = kDimensionsOfBlock;
    return shape;
  }
  constexpr ShapeConstants<7> constants() const { return matvec().constants(); }
  constexpr LaunchShape launch_shape() const {
    const int64_t blocks = rows == 1 ? ranks : ranks / kDimensionsOfBlock;
    return {{static_cast<unsigned>(blocks), static_cast<unsigned>(rows), 1},
            {static_cast<unsigned>(matvec().threads()), 1, 1},
            matvec().shared_bytes()};
  }
};

}  // namespace nodewright
