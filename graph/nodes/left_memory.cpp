#include "graph/nodes/left_memory.h"

#include "runtime/context_guard.h"

namespace nodewright {

void LeftMemory::free() noexcept {
  if (!launched_ || addresses_.empty()) return;
  try {
    const ContextGuard current(*device_);
    device_->synchronize();
    for (const CUdeviceptr address : addresses_) device_->driver().cuMemFree(address);
  } catch (const Error&) {  // what went wrong is reported where the stream is waited for
  }
}

}  // namespace nodewright
