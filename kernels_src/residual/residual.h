// The residual stream in the arguments of kernels: as one reads it under a norm, and as one leaves it for the next
// norm.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct ResidualIn {
  Optional<In<float>> x = {};         // [rows, stride], padded with zeros to stride
  Optional<Frozen<bf16>> gain = {};   // [cols] of the norm
  Optional<Frozen<bf16>> shift = {};  // [cols] of a LayerNorm, or empty

  // With post norms (kPostNorm) the residual is x + norm(projected) * post_gain; empty otherwise.
  Optional<In<float>> projected = {};       // [rows, stride], the first cols elements of a row count
  Optional<Frozen<bf16>> post_gain = {};    // [cols]
  Optional<PartialOut<float>> x_next = {};  // [rows, stride] that sum, padded with zeros, for later kernels; or empty

  // In tiles with kGained these replace x and gain: the kernel before has multiplied. Empty otherwise.
  Optional<In<bf16>> gained = {};    // [rows, stride], stride = cols
  Optional<In<float>> squares = {};  // [parts, padded rows (TileShape)] parts of the sums of squares of x

  float eps;  // added to the mean square, or to the variance
};

// Outputs beside the sum, for the kernel that normalizes it next (kLeavesGained); empty otherwise.
struct ResidualOut {
  Optional<Frozen<bf16>> gain = {};          // [cols] of their norm
  Optional<PartialOut<bf16>> gained = {};    // [rows, cols] the sums times that gain
  Optional<PartialOut<float>> squares = {};  // [parts, padded rows] of the sums, of each block's columns
};

// Results that join the residual.
struct AddTo {
  static constexpr bool kIsFlat = true;
  InOut<float> residual;  // [rows, stride]; an element is touched by the block that owns it
  int64_t stride;         // elements between two rows
  ResidualOut next;       // of tiles (product/tiles/tile_gained_rows.cuh); its columns are the outputs
};

// Sums over the ranks of a team.
struct SumOut {
  static constexpr bool kIsFlat = true;
  Optional<InOut<float>> residual = {};  // [rows, stride] the same on all ranks; empty if kAdds is 0
  Optional<PartialOut<float>> sum = {};  // [rows, stride]; empty if kAdds is 1
  int64_t stride;                        // elements between two rows
  ResidualOut next;                      // a part for each block of columns
};

}  // namespace nodewright
