// Whether the memory that a plan was built over is still there: asked before every launch, at the price of one load
// while no buffer of the device is freed.
#pragma once

#include <cstdint>

#include "graph/node.h"

namespace nodewright {

class BufferWatch {
 public:
  // Throws Error with the buffer, the first node that touches it, and the field, when the DeviceBuffer or PinnedBuffer
  // that it lay in when it was declared is gone. Memory of other owners is not checked.
  void check(const Plan& plan);

 private:
  uint64_t seen_ = 0;  // LiveBuffers::removed() when all was well
};

}  // namespace nodewright
