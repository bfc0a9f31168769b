// A point in a stream, waited for by the host, by another stream, or compared with another point in time.
#pragma once

#include <string>

#include "runtime/device.h"

namespace nodewright {

class Stream;

class Event {
 public:
  // `timing`: whether ms_since may be asked; an event without it is cheaper.
  Event(Device& device, std::string name, bool timing = false);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  CUevent get() const { return event_; }
  const std::string& name() const { return name_; }

  void record(const Stream& stream) const;
  void synchronize() const;
  // True when the recorded work has run, or when nothing was recorded. Never waits.
  bool done() const;
  // Milliseconds from `start` to this event; both recorded and done, both made with timing.
  float ms_since(const Event& start) const;

 private:
  void release() noexcept;

  Device* device_;
  std::string name_;
  CUevent event_ = nullptr;
};

}  // namespace nodewright
