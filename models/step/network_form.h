// What all operations of a network together allow a step to be, for models/step/step_shape.h. Which kernel takes which
// operation is the table's decision (models/lowering/lowering.h).
#pragma once

#include <cstdint>

#include "models/network/network.h"

namespace nodewright {

inline constexpr int64_t kProductsFromRows = 17;
// Rows of which a matrix is multiplied in tiles.
inline constexpr int64_t kTilesFromRows = 3, kTilesToRows = 16;

// Rows up to which a step of products multiplies by kernels that hold x in registers, and all rows attend one by one, a
// prompt's as those that choose.
inline constexpr int64_t kHeldToRows = 32;
// The same where weights are in FP8 or int4: two groups of rows read no more bytes than one of bf16, and a library's
// product would read them dequantized.
inline constexpr int64_t kHeldToRowsOfCodes = 64;

struct NetworkForm {
  bool post_norms = false;  // has_post_norms
  bool tiles = false;       // tiles take some product of a layer: not of the residual itself, without a norm
  bool products = false;    // they take all, and so does a library
  bool gained = false;      // besides, all norms are RMS norms and before a block: the one before may begin them
  // Rows from which on a step is one of products (models/step/step_shape.h), unless asked otherwise.
  int64_t products_from = kProductsFromRows;
  // Weights of layers are in FP8 or int4, which tiles past rows of x in registers multiply from kTilesFromRows on.
  bool quantized = false;
  bool alone = true;  // no sum goes over the ranks of a team: kernels that exchange have one group of held rows
  // Rows up to which a step of products may have such tiles.
  int64_t held_to() const { return quantized && alone ? kHeldToRowsOfCodes : kHeldToRows; }
  bool operator==(const NetworkForm&) const = default;
};

NetworkForm network_form(const Network& network);

}  // namespace nodewright
