// Where plans place CUDA arrays, whose memory has no addresses: above all memory, each array of a device in a range of
// its own, so that uses of an array are ordered as those of any buffer.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace nodewright {

// Addresses of the host and of devices have 57 bits at most: none has these.
inline constexpr uint64_t kArrayBase = uint64_t{0xa2} << 56;
inline constexpr uint64_t kArrayBytes = uint64_t{1} << 38;  // of addresses, for each array: 256 GiB
constexpr bool is_array(uint64_t address) { return address >> 56 == kArrayBase >> 56; }

// The places of one device's arrays. May be used by several threads. A handle keeps its place, also where another array
// has it later.
class ArrayPlaces {
 public:
  // `ordinal`: of the device; `bytes`: of the array. Throws Error when 16 384 handles have been placed.
  uint64_t address_of(CUarray array, int ordinal, uint64_t bytes);
  // The bytes of the array that has been placed there last.
  uint64_t bytes_at(uint64_t address);

 private:
  std::mutex mutex_;
  std::map<CUarray, uint64_t> numbers_;
  std::vector<uint64_t> bytes_;  // by number
};

// How the elements of an array lie: `slices` slices of `rows` rows of `row_bytes` bytes, one after the other.
struct ArrayShape {
  uint64_t row_bytes = 0, rows = 1, slices = 1;
  uint64_t element_bytes = 1;  // of all its channels
  uint64_t bytes() const { return slices * rows * row_bytes; }
};

// Where in its array an address of ArrayPlaces lies: a byte of row y of slice z.
struct ArrayOrigin {
  uint64_t x_bytes = 0, y = 0, z = 0;
};
constexpr ArrayOrigin origin_of(uint64_t address, uint64_t row_bytes, uint64_t rows) {
  const uint64_t offset = address % kArrayBytes;
  return {offset % row_bytes, offset / row_bytes % rows, offset / (row_bytes * rows)};
}

class Driver;

// Throws Error with `name` when the driver does not know the array, and for formats other than 1, 2 or 4 channels of 8,
// 16 or 32 bits.
ArrayShape array_shape(const Driver& driver, CUarray array, const char* doing, const std::string& name);

}  // namespace nodewright
