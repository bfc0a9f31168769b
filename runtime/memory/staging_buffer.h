// Host memory for large copies to the device, page-locked only once it has been filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/device.h"

namespace nodewright {

// Lies in pages of 2 MiB where the system has them. A PinnedBuffer of 48 MiB takes 25 ms to make and 7 to free, most of
// it for pages of 4 KiB; this one, filled by many threads at once, 2 and 1 (H200 host, driver 580.159.04, 2026-11-21;
// bench/results/2026-11-21-h200-load.txt).
class StagingBuffer {
 public:
  // Throws Error when address space is short. `bytes` is at least 1.
  StagingBuffer(Device& device, std::string name, uint64_t bytes);
  ~StagingBuffer();
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&&) = delete;

  // Zeros at first; may be written before pin().
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // Locks the pages, once: asynchronous copies need it. Throws Error when the system allows no more locked memory.
  void pin();

 private:
  Device* device_;
  std::string name_;
  uint64_t bytes_, mapped_bytes_;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;  // within the mapping
  bool pinned_ = false;
};

}  // namespace nodewright
