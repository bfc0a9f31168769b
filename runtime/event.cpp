#include "runtime/event.h"

#include <utility>

#include "runtime/context_guard.h"
#include "runtime/moved_into.h"
#include "runtime/stream.h"

namespace nodewright {

Event::Event(Device& device, std::string name, bool timing) : device_(&device), name_(std::move(name)) {
  const ContextGuard current(*device_);
  Driver& driver = device.driver();
  const unsigned flags = timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  driver.check(driver.cuEventCreate(&event_, flags), "cuEventCreate", "create event", name_);
  owned_ = true;
}

Event Event::borrow(Device& device, CUevent event, std::string name) { return Event(device, event, std::move(name)); }

Event::~Event() { release(); }

Event::Event(Event&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      event_(std::exchange(other.event_, nullptr)),
      owned_(std::exchange(other.owned_, false)) {}

Event& Event::operator=(Event&& other) noexcept { return moved_into(*this, std::move(other)); }

void Event::release() noexcept {
  if (!owned_) return;
  const ContextGuard current(*device_, std::nothrow);
  device_->driver().cuEventDestroy(event_);
  owned_ = false;
}

void Event::record(const Stream& stream) const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  driver.check(driver.cuEventRecord(event_, stream.get()), "cuEventRecord", "record event", name_,
               "on stream '" + stream.name() + "'");
}

void Event::synchronize() const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  driver.check(driver.cuEventSynchronize(event_), "cuEventSynchronize", "wait for event", name_);
}

bool Event::done() const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  const CUresult result = driver.cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  driver.check(result, "cuEventQuery", "query event", name_);
  return true;
}

float Event::ms_since(const Event& start) const {
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  float ms = 0;
  driver.check(driver.cuEventElapsedTime(&ms, start.event_, event_), "cuEventElapsedTime", "read the time of event",
               name_, "since event '" + start.name_ + "'",
               "record both, wait for the later, and make both with timing");
  return ms;
}

}  // namespace nodewright
