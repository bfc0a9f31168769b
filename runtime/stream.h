// A non-blocking stream: it does not synchronise with the default stream.
#pragma once

#include <string>

#include "runtime/device.h"

namespace nodewright {

class Event;

class Stream {
 public:
  Stream(Device& device, std::string name);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  CUstream get() const { return stream_; }
  Device& device() const { return *device_; }
  const std::string& name() const { return name_; }

  // Waits for everything submitted; throws Error with what a kernel of this stream did wrong, if it did.
  void synchronize() const;
  // True when everything submitted has run. Never waits; throws Error as synchronize() does.
  bool done() const;
  // Work submitted after this call starts after `event`.
  void wait(const Event& event) const;

 private:
  void release() noexcept;

  Device* device_;
  std::string name_;
  CUstream stream_ = nullptr;
};

}  // namespace nodewright
