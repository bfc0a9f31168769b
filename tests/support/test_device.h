// Which device a test runs on: the CPU driver, unless NODEWRIGHT_TEST_DEVICE names another. The same test programs run
// on both. A suite that can only pass on the CPU driver is named *OnCpuDriver, which the GPU runs leave out by filter:
// a skipped test would count as failed there. One that needs two devices is named TwoDevices*,
// and one that the CPU driver cannot run *OnGpus.
#pragma once

#include <cstdlib>
#include <string>

namespace nodewright::test {

// A spec for open_device: "cpu" or, on a GPU machine, "cuda:0".
inline std::string test_device() {
  const char* named = std::getenv("NODEWRIGHT_TEST_DEVICE");
  return named != nullptr && *named != '\0' ? named : "cpu";
}

inline bool test_device_is_cuda() { return test_device().starts_with("cuda"); }

}  // namespace nodewright::test
