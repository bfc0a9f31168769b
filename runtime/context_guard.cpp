#include "runtime/context_guard.h"

#include "runtime/device.h"

namespace nodewright {

ContextGuard::ContextGuard(const Device& device) : ContextGuard(device.driver(), device.context(), device.name()) {}

ContextGuard::ContextGuard(const Driver& driver, CUcontext context, std::string_view device_name)
    : before_(driver.current_context()) {
  if (before_ == context) return;
  driver.check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent", "make current the context of", device_name);
  driver_ = &driver;
}

ContextGuard::ContextGuard(const Device& device, std::nothrow_t) noexcept : before_(device.driver().current_context()) {
  if (before_ == device.context() || device.driver().cuCtxSetCurrent(device.context()) != CUDA_SUCCESS) return;
  driver_ = &device.driver();
}

}  // namespace nodewright
