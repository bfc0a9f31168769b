// What all operations of a network together allow a step to be, for models/plan/step_shape.h. Which kernel takes which
// operation is the table's decision (models/lowering/lowering.h).
#pragma once

#include "models/network/network.h"

namespace nodewright {

struct NetworkForm {
  bool post_norms = false;  // has_post_norms
  bool tiles = false;       // tiles take some product of a layer
  bool products = false;    // tiles take every operation, and so do a library's products and the kernels between them
  bool gained = false;      // and all norms are Norm::rms and before a block, so each may begin in the block before
  bool operator==(const NetworkForm&) const = default;
};

NetworkForm network_form(const Network& network);

// Why neither tiles nor a library's products take this operation, or null.
const char* not_in_tiles(const Op& op);

}  // namespace nodewright
