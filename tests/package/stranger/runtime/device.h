// This project's own runtime/device.h: the stream that its other work runs on.
#pragma once

#include <nodewright/runtime/context_guard.h>
#include <nodewright/runtime/device.h>

namespace stranger {

class Queue {
 public:
  explicit Queue(nodewright::Device& device) : device_(device) {
    const nodewright::ContextGuard guard(device_);
    const nodewright::Driver& driver = device_.driver();
    driver.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate", "make", "the queue");
  }
  ~Queue() {
    const nodewright::ContextGuard guard(device_);
    device_.driver().cuStreamDestroy(stream_);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  CUstream stream() const { return stream_; }

 private:
  nodewright::Device& device_;
  CUstream stream_ = nullptr;
};

}  // namespace stranger
