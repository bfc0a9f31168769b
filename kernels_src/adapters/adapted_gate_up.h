// NormGateUp of rows with adapters, and Gate: what they add comes before the activation.
#pragma once

#include "kernels_src/elementwise/gate.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// As NormGateUp (kernels_src/projection/norm_gate_up.h); adapted_gate_up.cu and tile_adapted_gate_up.cu.
struct AdaptedGateUp {
  ResidualIn from;                   // and its norm
  Frozen<bf16> weight;               // [2 * intermediate, stride], or without a gate [intermediate, stride]
  Optional<Frozen<bf16>> bias = {};  // [outputs], or empty
  PartialOut<bf16> y;                // [rows, y_stride]
  In<int32_t> n_live;                // [1] rows that count; not read at bucket 1
  int64_t outputs;                   // rows of weight
  int64_t y_stride;                  // elements between two rows of y
  float eps;                         // added to the mean square, or to the variance
  AdapterIn adapter;                 // parts: gate and up, or up
};

// As Gate (kernels_src/elementwise/gate.h), with its constants, launch shape and kAdapterRank; adapted_gate.cu.
struct AdaptedGate {
  In<bf16> x;          // [rows, x_stride]
  PartialOut<bf16> y;  // [rows, y_stride]
  In<int32_t> n_live;  // [1]
  int64_t outputs;     // elements of a row of y that count
  int64_t x_stride;
  int64_t y_stride;
  Optional<Frozen<bf16>> bias = {};  // of the elements of a row of x, or empty; 16-byte aligned
  AdapterIn adapter;                 // parts: gate and up, or up
};

}  // namespace nodewright
