// y = f(gate) * up, out of the product that gives both, or f(up), with the product's bias: the middle of a feed-forward
// block of library products.
#pragma once

#include "kernels_src/argument_blocks.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Gate {
  static constexpr bool kIsFlat = true;
  // Element 2i of a row of x is gate i, element 2i + 1 up i; without a gate i up i. x_stride: a multiple of 8, at least
  // `outputs` or, with a gate, twice as many.
  RowsIn from;
  RowsOut<bf16> to;
  In<int32_t> n_live;                // [1]
  int64_t outputs;                   // elements of a row of y that count
  Optional<Frozen<bf16>> bias = {};  // of the elements of a row of x, or empty; 16-byte aligned
};

// Constants: kActivation (kernels_src/elementwise/activation.h), kGated, kBias; kRagged: 1 where the elements that
// count of a row of x are no multiple of 8; kPasses: gate_passes().
inline constexpr unsigned kGateThreads = 256;
// Eights of x that a thread reads: several where there are blocks for all SMs anyway.
constexpr int64_t gate_passes(unsigned rows) { return rows >= 256 ? 4 : 1; }
constexpr LaunchShape gate_shape(unsigned rows, int64_t outputs, bool gated) {
  const int64_t of_block = gate_passes(rows) * (gated ? 4 : 8) * static_cast<int64_t>(kGateThreads);
  return {{static_cast<unsigned>((outputs + of_block - 1) / of_block), rows, 1}, {kGateThreads, 1, 1}, 0};
}

}  // namespace nodewright
