// What all operations of a network together allow a step to be, for models/plan/step_shape.h. Which kernel takes which
// operation is the table's decision (models/lowering/lowering.h).
#pragma once

#include "models/network/network.h"

namespace nodewright {

struct NetworkForm {
  bool post_norms = false;  // has_post_norms
  bool tiles = false;       // tiles take some product of a layer
  bool products = false;    // so does a library, and the step's own kernels take the others beside it
  bool gained = false;  // tiles take all, and all norms are Norm::rms and before a block: the one before may begin them
  bool operator==(const NetworkForm&) const = default;
};

NetworkForm network_form(const Network& network);

// Why neither tiles nor a library's products take this operation, or null.
const char* not_in_tiles(const Op& op);

}  // namespace nodewright
