// The residual stream in the arguments of kernels: as one reads it under a norm, and as one leaves it for the next
// norm.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ResidualIn {
  Optional<In<float>> x;         // [rows, stride], padded with zeros to stride
  Optional<Frozen<bf16>> gain;   // [cols] of the norm
  Optional<Frozen<bf16>> shift;  // [cols] of a LayerNorm, else empty

  // In a family with post norms (kPostNorm) x + norm(projected) * post_gain stands for x; else empty.
  Optional<In<float>> projected;     // [rows, stride], the first cols elements of a row count
  Optional<Frozen<bf16>> post_gain;  // [cols]
  Optional<Out<float>> x_next;       // [rows, stride] that sum, padded with zeros, for later kernels; or empty

  // In tiles whose x the kernel before has multiplied by the gain (kGained) these stand for x and gain; else empty.
  Optional<In<bf16>> gained;    // [rows, stride], stride = cols
  Optional<In<float>> squares;  // [parts, rows rounded up to 8] parts of the sums of squares of x
};

// What a kernel leaves beside the sum for one that norms it next (kLeavesGained); else empty.
struct ResidualOut {
  Optional<Frozen<bf16>> gain;   // [cols] of their norm
  Optional<Out<bf16>> gained;    // [rows, cols] the sums times that gain
  Optional<Out<float>> squares;  // [parts, rows rounded up to 8] of the sums, of each block's columns
};

}  // namespace nodewright
