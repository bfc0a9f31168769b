// A point in a stream, waited for by the host, by another stream, or compared with another point in time.
#pragma once

#include <string>
#include <utility>

#include "runtime/device.h"

namespace nodewright {

class Stream;

// A driver's event, owned or borrowed. May be used by several threads at once.
class Event {
 public:
  // `timing`: whether ms_since may be asked; an event without it is cheaper.
  Event(Device& device, std::string name, bool timing = false);
  // Borrows an event of `device` from its owner, who keeps it for as long as this object and every graph with a node of
  // it are used.
  static Event borrow(Device& device, CUevent event, std::string name);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  CUevent get() const { return event_; }             // the driver's handle
  Device& device() const { return *device_; }        // it was made on
  const std::string& name() const { return name_; }  // for errors

  // Marks the work submitted to the stream so far.
  void record(const Stream& stream) const;
  // Waits for the recorded work; throws Error with what it did wrong, if it did.
  void synchronize() const;
  // True when the recorded work has run, or when nothing was recorded. Never waits.
  bool done() const;
  // Milliseconds from `start` to this event; both recorded and done, both made with timing.
  float ms_since(const Event& start) const;

 private:
  Event(Device& device, CUevent event, std::string name) : device_(&device), name_(std::move(name)), event_(event) {}
  void release() noexcept;

  Device* device_;
  std::string name_;
  CUevent event_ = nullptr;
  bool owned_ = false;
};

}  // namespace nodewright
