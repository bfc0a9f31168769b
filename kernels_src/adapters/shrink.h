// h = s A x of each row's own adapter: the first half of what a LoRA adapter adds to a product.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/projection/matvec_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Where the adapters of a matrix are. What is said of slot 0 lies in slot i a multiple of the slot's size behind.
struct AdapterRows {
  Frozen<bf16> a;           // [ranks, kStride] of slot 0: A of each part, one below the other
  Frozen<float> scales;     // [ranks / kRank] of slot 0: of each part
  Settled<int32_t> ids;     // [rows] slot of the row's adapter; -1: none
  Settled<int32_t> n_live;  // [1] rows that count
  int64_t ranks;            // parts * kRank
  int64_t slot_elements;    // bf16 from one slot to the next; twice as many as floats
};

// Of rows that are there as the product reads them.
struct Shrink {
  AdapterRows adapter;
  In<bf16> x;        // [rows, x_stride], the first kCols elements of a row count
  Out<float> h;      // [rows, ranks]; zero where the row has no adapter
  int64_t x_stride;  // elements between two rows of x
};

// Of the norm of the residual, which the product computes for itself (norm_shrink.cu).
struct NormShrink {
  AdapterRows adapter;
  ResidualIn from;  // and its norm; never gained, and its x_next is empty
  Out<float> h;     // [rows, ranks]; zero where the row has no adapter
  float eps;        // added to the mean square, or to the variance
};

// Constants: those of projection/matvec.cuh for one row of x a block, kRank.
struct ShrinkShape {
  int64_t rows = 1, cols = 0, stride = 0;
  int64_t ranks = 0;  // rows of A
  bool normed = false;

  static constexpr int64_t kRanksOfBlock = 8;  // of more rows than one

  constexpr MatvecShape matvec() const {
    MatvecShape shape{3, cols, stride, ranks, 1, normed};  // any odd number: a block has one row of x
    shape.tuning.batch = std::min(shape.batch(), kRanksOfBlock);
    shape.of_block = kRanksOfBlock;
    return shape;
  }
  constexpr ShapeConstants<7> constants() const { return matvec().constants(); }
  constexpr LaunchShape launch_shape() const {
    const int64_t blocks = rows == 1 ? ranks : ranks / kRanksOfBlock;
    return {{static_cast<unsigned>(blocks), static_cast<unsigned>(rows), 1},
            {static_cast<unsigned>(matvec().threads()), 1, 1},
            matvec().shared_bytes()};
  }
};

}  // namespace nodewright
