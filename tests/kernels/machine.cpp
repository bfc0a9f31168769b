// Opens the shared machine, and closes it before main returns: a driver may be gone when static objects are destroyed.
#include "tests/kernels/machine.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/test_device.h"

namespace nodewright::test {
namespace {

class MachineEnvironment : public ::testing::Environment {
 public:
  void TearDown() override { machine.reset(); }

  std::unique_ptr<Machine> machine;
  std::string spec;  // empty: the test device
};

MachineEnvironment* const environment = [] {
  auto made = std::make_unique<MachineEnvironment>();
  MachineEnvironment* raw = made.get();
  ::testing::AddGlobalTestEnvironment(made.release());  // gtest owns it
  return raw;
}();

std::string default_spec() {
  const std::string spec = test_device();
  return spec == "cpu" ? "cpu:checked" : spec;
}

}  // namespace

Machine::Machine(std::string_view spec)
    : opened(open_device(spec)), device(*opened.device), stream(device, "kernel tests"), kernels(device) {}

Machine& machine() {
  if (environment->machine == nullptr)
    environment->machine = std::make_unique<Machine>(environment->spec.empty() ? default_spec() : environment->spec);
  return *environment->machine;
}

void reopen_machine(std::string_view spec) {
  environment->machine.reset();
  environment->spec = spec;
}

}  // namespace nodewright::test
