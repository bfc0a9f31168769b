#include "runtime/memory/known_memory.h"

#include <array>

#include "runtime/context_guard.h"

namespace nodewright {

// cuPointerGetAttributes tells zeros of an address that it does not know. cuPointerGetAttribute fails there, which
// compute-sanitizer would report for each scalar.
std::optional<KnownMemory> known_memory_at(const Device& device, uint64_t address) {
  const ContextGuard current(device);
  unsigned int type = 0;
  int ordinal = 0;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values{&type, &ordinal, &begin, &bytes};
  const CUresult result =
      device.driver().cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(), address);
  if (result != CUDA_SUCCESS || type == 0) return std::nullopt;
  return KnownMemory{begin, bytes, ordinal, type == CU_MEMORYTYPE_HOST};
}

std::string describe_device(const Driver& driver, int ordinal) {
  char name[256] = "?";
  CUdevice device = 0;
  if (driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS) driver.cuDeviceGetName(name, sizeof name, device);
  return "'" + std::string(name) + "' (device " + std::to_string(ordinal) + ")";
}

}  // namespace nodewright
