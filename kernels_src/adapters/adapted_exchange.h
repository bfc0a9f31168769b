// ProjectExchange and ExchangeAdd of rows with adapters. Each rank adds B A_r x_r, of its columns of A, to what it has:
// the sum over the ranks is that of the whole adapter, since B is the same everywhere.
#pragma once

#include "kernels_src/exchange/exchange.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Words of a row of B, 16 bytes each, in flight at once: with 8, at rank 64, the kernels spill 4 to 24 bytes a thread
// beside the registers of the exchange (NVRTC 13.0, tests/graph/team/exchange_kernels_test.cpp).
inline constexpr int kWordsAtOnce = 2;

// As ProjectExchange (kernels_src/projection/project_exchange.h), with its constants and kAdapterRank;
// adapted_project_exchange.cu and tile_adapted_project_exchange.cu.
struct AdaptedProjectExchange {
  In<bf16> x;                            // [rows, x_stride], the first cols elements of a row count
  Frozen<bf16> weight;                   // [outputs, stride] the rank's columns
  Optional<Frozen<bf16>> bias = {};      // [outputs], of one rank; or empty
  Optional<InOut<float>> residual = {};  // [rows, residual_stride] the same on all ranks; empty if kAdds is 0
  Optional<PartialOut<float>> y = {};    // [rows, residual_stride]; empty if kAdds is 1
  In<int32_t> n_live;                    // [1] rows that count, the same on all ranks; not read at bucket 1
  int64_t outputs;                       // rows of weight
  int64_t x_stride;                      // elements between two rows of x
  int64_t residual_stride;
  ResidualOut next;   // of tiles; its columns are the outputs
  AdapterIn adapter;  // of one part
  Exchange exchange;  // packet m * outputs + n: row m, output n
};

// As ExchangeAdd (kernels_src/exchange/exchange_add.h), with its constants and kAdapterRank; adapted_exchange_add.cu.
struct AdaptedExchangeAdd {
  Optional<In<float>> y = {};            // [rows, stride] what this rank has; empty with kBulk
  Optional<In<bf16>> y_bf16 = {};        // [rows, stride] the same; empty without kBulk
  Optional<Frozen<bf16>> bias = {};      // [cols] of this rank; empty if kBias is 0
  Optional<InOut<float>> residual = {};  // [rows, stride] the same on all ranks; empty if kAdds is 0
  Optional<PartialOut<float>> sum = {};  // [rows, stride]; empty if kAdds is 1
  In<int32_t> n_live;                    // [1] rows that count, the same on all ranks
  int64_t cols;
  int64_t stride;     // elements between two rows
  ResidualOut next;   // a part for each block of columns
  AdapterIn adapter;  // of one part
  Exchange exchange;  // as of ExchangeAdd
};

}  // namespace nodewright
