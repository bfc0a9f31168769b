// A non-blocking stream, which does not synchronise with the default stream; or a stream of another owner.
#pragma once

#include <string>
#include <utility>

#include "runtime/device.h"

namespace nodewright {

class Event;

// A driver's stream, owned or borrowed. Several threads may submit to it, in the order in which their calls come.
class Stream {
 public:
  // `name`: for errors.
  Stream(Device& device, std::string name);
  // Borrows a stream of `device` from its owner, who keeps it for as long as this object is used. Null is the legacy
  // default stream, which cannot be captured.
  static Stream borrow(Device& device, CUstream stream, std::string name);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  CUstream get() const { return stream_; }           // the driver's handle
  Device& device() const { return *device_; }        // it was made on
  const std::string& name() const { return name_; }  // for errors

  // Waits for everything submitted; throws Error with what a kernel of this stream did wrong, if it did.
  void synchronize() const;
  // True when everything submitted has run. Never waits; throws Error as synchronize() does.
  bool done() const;
  // Work submitted after this call starts after `event`.
  void wait(const Event& event) const;

 private:
  Stream(Device& device, CUstream stream, std::string name)
      : device_(&device), name_(std::move(name)), stream_(stream) {}
  void release() noexcept;

  Device* device_;
  std::string name_;
  CUstream stream_ = nullptr;
  bool owned_ = false;
};

}  // namespace nodewright
