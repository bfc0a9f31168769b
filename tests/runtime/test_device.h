// The device that the tests of this folder run on: $NODEWRIGHT_TEST_DEVICE, or else the CPU driver.
#pragma once

#include <cstdlib>
#include <string>

namespace nodewright {

inline std::string test_device() {
  const char* named = std::getenv("NODEWRIGHT_TEST_DEVICE");
  return named != nullptr ? named : "cpu";
}

}  // namespace nodewright
