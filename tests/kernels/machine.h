// The device, stream and kernel cache that the kernel tests share, opened when a test first asks for them. On the CPU
// driver every access is checked against the roles of the arguments.
#pragma once

#include <string>
#include <string_view>

#include "runtime/device_selection.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"

namespace nodewright::test {

struct Machine {
  explicit Machine(std::string_view spec);

  OpenedDevice opened;
  Device& device;
  Stream stream;
  KernelCache kernels;
};

Machine& machine();

// Closes the machine; the next machine() opens `spec`, or the test device when it is empty. No device memory may be
// left: the CPU driver takes new options only when nobody uses it.
void reopen_machine(std::string_view spec);

}  // namespace nodewright::test
