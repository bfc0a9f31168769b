// The context that a driver call needs, made current on the calling thread for as long as the call takes.
#pragma once

#include <new>

#include "runtime/driver.h"

namespace nodewright {

class Device;

// Makes a context current on this thread while the guard lives, and restores the previous one afterwards. Where the
// context is current already, the guard costs one query. To be destroyed on the thread that made it.
class ContextGuard {
 public:
  // Throws Error when the driver does not take the context.
  explicit ContextGuard(const Device& device);
  ContextGuard(const Driver& driver, CUcontext context, std::string_view device_name);
  // For destructors: where the driver does not take it, nothing changes.
  ContextGuard(const Device& device, std::nothrow_t) noexcept;
  ~ContextGuard() {
    if (driver_ != nullptr) driver_->cuCtxSetCurrent(before_);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Driver* driver_ = nullptr;  // null: it was current already
  CUcontext before_ = nullptr;
};

}  // namespace nodewright
