// Page-locked memory of one size that goes from one owner to the next. To lock or unlock pages keeps the driver busy
// for milliseconds, in which no thread launches anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/memory/staging_buffer.h"

namespace nodewright {

// Several threads may use it. The device must outlive the pool.
class StagingPool {
 public:
  // Buffers of `bytes`, of which it keeps at most `kept` that nobody has.
  StagingPool(Device& device, std::string name, uint64_t bytes, size_t kept)
      : device_(&device), name_(std::move(name)), bytes_(bytes), kept_(kept) {
    free_.reserve(kept);
  }

  // One that was given back, page-locked and with what it held then; or a new one. Throws Error as StagingBuffer does.
  StagingBuffer take();
  // No copy from it may be under way.
  void give_back(StagingBuffer buffer) noexcept;

 private:
  Device* device_;
  std::string name_;
  uint64_t bytes_;
  size_t kept_;
  std::mutex mutex_;
  std::vector<StagingBuffer> free_;
};

}  // namespace nodewright
