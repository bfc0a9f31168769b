// Every load and store of a checked image against the roles of its launch's arguments. Decides; faults.h words it.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_driver/kernel_abi.h"
#include "kernels_src/field_visit.h"

namespace nodewright::cpu {

// The memory that one argument field declares.
struct DeclaredRange {
  uint64_t begin, end;
  Role role;
  int field;  // index into the kernel's fields
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
