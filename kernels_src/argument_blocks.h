// Argument blocks: groups of fields that many kernels take. Blocks of one subject stand beside it (residual/residual.h,
// exchange/exchange.h). A block with kIsFlat lends its fields to the struct around it: plans and messages name them
// without the block, `x` instead of `from.x`.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// Rows of x as they lie in memory.
struct RowsIn {
  static constexpr bool kIsFlat = true;
  In<bf16> x;        // [rows, x_stride], the first cols elements of a row count
  int64_t x_stride;  // elements between two rows
};

// The matrix W and its bias.
struct WeightIn {
  static constexpr bool kIsFlat = true;
  Frozen<bf16> weight;               // [outputs, stride]; of experts, one below the other
  Optional<Frozen<bf16>> bias = {};  // [outputs], or empty
  int64_t outputs;                   // rows of weight; of one expert
};

template <class T>
struct RowsOut {
  static constexpr bool kIsFlat = true;
  PartialOut<T> y;   // [rows, y_stride]
  int64_t y_stride;  // elements between two rows
};

// W x + b. From: where x comes from, RowsIn or ResidualIn. To: where the results go.
template <class From, class To>
struct Product {
  static constexpr bool kIsFlat = true;
  From from;
  WeightIn w;
  To to;
  In<int32_t> n_live;  // [1] rows that count; not read at bucket 1
};

}  // namespace nodewright
