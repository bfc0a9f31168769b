// What the driver knows of an address, however the memory there was allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/device.h"

namespace nodewright {

// An allocation, or host memory that was page-locked.
struct KnownMemory {
  uint64_t address = 0, bytes = 0;  // of its first byte, and how many
  int device = 0;                   // the ordinal of the device that it was allocated for
  bool host = false;                // host memory, which every device may use
};

// Nothing where the driver knows no memory there, as of a number that is no address.
std::optional<KnownMemory> known_memory_at(const Device& device, uint64_t address);

// The device of that ordinal, as describe_device(const Device&) words it.
std::string describe_device(const Driver& driver, int ordinal);

}  // namespace nodewright
