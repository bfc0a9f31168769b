// A driver with two devices at least, for tests named TwoDevices*: on GPUs where tests run on one, else two of the CPU
// driver's.
#pragma once

#include <memory>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/driver.h"
#include "tests/support/test_device.h"

namespace nodewright::test {

inline std::unique_ptr<Driver> driver_of_several_devices() {
  if (test_device_is_cuda()) return Driver::load_cuda();
  CpuDriverOptions options;
  options.devices = 2;
  return Driver::load_cpu(options);
}

// After cuInit.
inline int device_count(const Driver& driver) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount", "count", "devices");
  return count;
}

}  // namespace nodewright::test
