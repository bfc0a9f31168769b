// y = f(layer_norm(x) . W^T + bias): the qkv projection, the first half of a feed-forward block, and the logits of
// GPT-2 and its kin. f is nothing, or GELU with the error function or with tanh.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/elementwise/activation.h"

namespace nodewright {

// W: bf16 or float.
template <class W>
struct LayerNormProject {
  In<float> x;                    // [rows, x_stride], rows 16-byte aligned; the first cols elements count
  In<int32_t> n_live;             // [1] rows that count
  Frozen<W> gain;                 // [cols]
  Frozen<W> shift;                // [cols]
  Frozen<W> weight;               // [outputs, cols rounded up to 16 bytes], the padding zero
  Optional<Frozen<W>> bias = {};  // [outputs], or empty
  PartialOut<float> y;            // [rows, y_stride]
  int64_t outputs;                // rows of weight
  int64_t x_stride;               // elements between two rows
  int64_t y_stride;
  float eps;
};

}  // namespace nodewright
