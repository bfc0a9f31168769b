// Every load and store of a checked image against the roles of its launch's arguments. Decides; faults.h words it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu_driver/kernel_abi.h"
#include "kernels_src/field_visit.h"

namespace nodewright::cpu {

// The elements of an Out that a launch has stored to, a bit each; one with padding counts as a whole.
class StoredElements {
 public:
  StoredElements(uint64_t count, uint64_t bytes)
      : count_(count), bytes_(bytes), words_(std::make_unique<std::atomic<uint64_t>[]>((count + 63) / 64)) {}

  // Bytes from the first element's. By several blocks at once.
  void add(uint64_t begin, uint64_t end) {
    for (uint64_t i = begin / bytes_; i * bytes_ < end; ++i) {
      const uint64_t bit = uint64_t{1} << i % 64;
      if ((words_[i / 64].load(std::memory_order_relaxed) & bit) == 0)
        words_[i / 64].fetch_or(bit, std::memory_order_relaxed);
    }
  }
  // The first that is missing; the count when all are there.
  uint64_t first_missing() const {
    for (uint64_t word = 0; word * 64 < count_; ++word)
      if (const uint64_t missing = ~words_[word].load(std::memory_order_relaxed); missing != 0)
        return std::min(count_, word * 64 + static_cast<uint64_t>(__builtin_ctzll(missing)));
    return count_;
  }
  uint64_t missing() const {
    uint64_t stored = 0;
    for (uint64_t word = 0; word * 64 < count_; ++word)
      stored += static_cast<uint64_t>(__builtin_popcountll(words_[word].load(std::memory_order_relaxed)));
    return count_ - stored;
  }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }  // of an element

 private:
  uint64_t count_, bytes_;
  std::unique_ptr<std::atomic<uint64_t>[]> words_;
};

// The memory that one argument field declares.
struct DeclaredRange {
  uint64_t begin, end;
  Role role;
  int field;                               // index into the kernel's fields
  std::unique_ptr<StoredElements> stored;  // of an Out
};

// What a launch may touch. Filled before its blocks start, then only read.
struct AccessRules {
  std::vector<DeclaredRange> ranges;
  uint64_t device_begin = 0, device_end = 0;  // all device and pinned memory lies in here
  uint64_t image_begin = 0, image_end = 0;    // the kernel's own constants
};

// Hooks::check: returns, or abandons the block.
void check_access(const volatile void* address, size_t bytes, emulation::Access access);

}  // namespace nodewright::cpu
