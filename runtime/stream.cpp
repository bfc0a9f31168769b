#include "runtime/stream.h"

#include <utility>

#include "runtime/context_guard.h"
#include "runtime/event.h"
#include "runtime/moved_into.h"

namespace nodewright {

Stream::Stream(Device& device, std::string name) : device_(&device), name_(std::move(name)) {
  const ContextGuard current(*device_);
  Driver& driver = device.driver();
  driver.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate", "create stream", name_);
  owned_ = true;
}

Stream Stream::borrow(Device& device, CUstream stream, std::string name) {
  return Stream(device, stream, std::move(name));
}

Stream::~Stream() { release(); }

Stream::Stream(Stream&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      stream_(std::exchange(other.stream_, nullptr)),
      owned_(std::exchange(other.owned_, false)) {}

Stream& Stream::operator=(Stream&& other) noexcept { return moved_into(*this, std::move(other)); }

void Stream::release() noexcept {
  if (!owned_) return;
  const ContextGuard current(*device_, std::nothrow);
  device_->driver().cuStreamDestroy(stream_);
  owned_ = false;
}

void Stream::synchronize() const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  driver.check(driver.cuStreamSynchronize(stream_), "cuStreamSynchronize", "finish the work of stream", name_);
}

bool Stream::done() const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  const CUresult result = driver.cuStreamQuery(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  driver.check(result, "cuStreamQuery", "finish the work of stream", name_);
  return true;
}

void Stream::wait(const Event& event) const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  driver.check(driver.cuStreamWaitEvent(stream_, event.get(), CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent",
               "make a stream wait for event", event.name(), "stream '" + name_ + "'");
}

}  // namespace nodewright
