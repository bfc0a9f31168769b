// What all operations of a network together allow a step to be, for models/step/step_shape.h. Which kernel takes which
// operation is the table's decision (models/lowering/lowering.h).
#pragma once

#include <cstdint>

#include "models/network/network.h"

namespace nodewright {

inline constexpr int64_t kProductsFromRows = 17;

struct NetworkForm {
  bool post_norms = false;  // has_post_norms
  bool tiles = false;       // tiles take some product of a layer: not of the residual itself, without a norm
  bool products = false;    // they take all, and so does a library
  bool gained = false;      // besides, all norms are RMS norms and before a block: the one before may begin them
  // Rows from which on a step is one of products (models/step/step_shape.h), unless asked otherwise.
  int64_t products_from = kProductsFromRows;
  bool operator==(const NetworkForm&) const = default;
};

NetworkForm network_form(const Network& network);

}  // namespace nodewright
