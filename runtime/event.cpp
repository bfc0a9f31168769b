#include "runtime/event.h"

#include <utility>

#include "runtime/stream.h"

namespace nodewright {

Event::Event(Device& device, std::string name, bool timing) : device_(&device), name_(std::move(name)) {
  Driver& driver = device.driver();
  const unsigned flags = timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  driver.check(driver.cuEventCreate(&event_, flags), "cuEventCreate", "create event", name_);
}

Event::~Event() { release(); }

Event::Event(Event&& other) noexcept
    : device_(other.device_), name_(std::move(other.name_)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this == &other) return *this;
  release();
  device_ = other.device_;
  name_ = std::move(other.name_);
  event_ = std::exchange(other.event_, nullptr);
  return *this;
}

void Event::release() noexcept {
  if (event_ != nullptr) device_->driver().cuEventDestroy(std::exchange(event_, nullptr));
}

void Event::record(const Stream& stream) const {
  Driver& driver = device_->driver();
  driver.check(driver.cuEventRecord(event_, stream.get()), "cuEventRecord", "record event", name_,
               "on stream '" + stream.name() + "'");
}

void Event::synchronize() const {
  Driver& driver = device_->driver();
  driver.check(driver.cuEventSynchronize(event_), "cuEventSynchronize", "wait for event", name_);
}

bool Event::done() const {
  Driver& driver = device_->driver();
  const CUresult result = driver.cuEventQuery(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  driver.check(result, "cuEventQuery", "query event", name_);
  return true;
}

float Event::ms_since(const Event& start) const {
  Driver& driver = device_->driver();
  float ms = 0;
  driver.check(driver.cuEventElapsedTime(&ms, start.event_, event_), "cuEventElapsedTime", "read the time of event",
               name_, "since event '" + start.name_ + "'",
               "record both, wait for the later, and make both with timing");
  return ms;
}

}  // namespace nodewright
