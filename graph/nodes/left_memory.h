// Memory that the last launch of a graph has left allocated, for its destructor to free.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/device.h"

namespace nodewright {

// Waits for the device and frees, where there was a launch. The driver frees what earlier launches have left.
class LeftMemory {
 public:
  explicit LeftMemory(const Device& device) : device_(&device) {}
  ~LeftMemory() { free(); }
  LeftMemory(LeftMemory&& other) noexcept
      : device_(other.device_),
        addresses_(std::move(other.addresses_)),
        launched_(std::exchange(other.launched_, false)) {}
  LeftMemory& operator=(LeftMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(addresses_, other.addresses_);
    std::swap(launched_, other.launched_);
    return *this;
  }

  void add(CUdeviceptr address) { addresses_.push_back(address); }  // a launch leaves it allocated
  void note_launch() { launched_ = true; }

 private:
  void free() noexcept;

  const Device* device_;
  std::vector<CUdeviceptr> addresses_;
  bool launched_ = false;
};

}  // namespace nodewright
