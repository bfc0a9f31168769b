// h = s A x of each row's own adapter: the first half of what a LoRA adapter adds to a product.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Where the adapters of a matrix are. What is said of slot 0 lies in slot i a multiple of the slot's size behind.
struct AdapterRows {
  Frozen<bf16> a;           // [ranks, kStride] of slot 0: A of each part, one below the other
  Frozen<float> scales;     // [ranks / kAdapterRank] of slot 0: of each part
  Settled<int32_t> ids;     // [rows] slot of the row's adapter; -1: none
  Settled<int32_t> n_live;  // [1] rows that count
  int64_t ranks;            // parts * kAdapterRank
  int64_t slot_elements;    // bf16 from one slot to the next; twice as many as floats
};

// A x of rows that lie as the product reads them.
struct Shrink {
  AdapterRows adapter;
  RowsIn from;
  PartialOut<float> h;  // [rows, ranks]; zero where the row has no adapter
};

// A norm(x) of the residual, whose norm the product computes for itself (norm_shrink.cu).
struct NormShrink {
  AdapterRows adapter;
  ResidualIn from;      // and its norm; never gained, and its x_next is empty
  PartialOut<float> h;  // [rows, ranks]; zero where the row has no adapter
};

// Constants and launch shape: shrink_shape.h.

}  // namespace nodewright
