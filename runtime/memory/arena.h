// Named pieces of one buffer, taken one after the other and given back all at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/memory.h"

namespace nodewright {

// The alignment of cuMemAlloc itself, and more than any vector load or bulk copy needs.
inline constexpr uint64_t kArenaAlignBytes = 256;

class Arena {
 public:
  explicit Arena(const DeviceBuffer& buffer) : Arena(buffer.name(), buffer.address(), buffer.bytes()) {}
  // Part of a buffer.
  Arena(std::string name, uint64_t address, uint64_t bytes)
      : name_(std::move(name)), address_(address), bytes_(bytes) {}
  // Without memory: measures the bytes that a layout needs. The views are not to be used.
  static Arena measuring() { return {"layout", kArenaAlignBytes, uint64_t{1} << 62}; }

  // `count` elements of T, remembered under `name`. Throws Error with the bytes needed and left.
  template <class T>
  View<T> take(std::string name, uint64_t count, std::string kind = "activation",
               uint64_t align_bytes = kArenaAlignBytes) {
    return {reinterpret_cast<T*>(take_bytes(std::move(name), count, sizeof(T), std::move(kind), align_bytes)), count};
  }

  const std::vector<NamedRange>& ranges() const { return ranges_; }  // in order
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

 private:
  uint64_t take_bytes(std::string name, uint64_t count, uint64_t element_bytes, std::string kind, uint64_t align_bytes);

  std::string name_;
  uint64_t address_, bytes_;
  uint64_t used_bytes_ = 0;
  std::vector<NamedRange> ranges_;
};

}  // namespace nodewright
