#include "runtime/device_selection.h"

#include <gtest/gtest.h>

#include "runtime/cpu_driver/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

TEST(DeviceSelectionOnCpuDriver, OpensItByName) {
  const OpenedDevice opened = open_device("cpu");
  EXPECT_TRUE(opened.driver->is_cpu());
  EXPECT_EQ(opened.interposer, nullptr);
  EXPECT_EQ(opened.device->properties().cc_major, 9);
}

TEST(DeviceSelectionOnCpuDriver, UnderstandsItsOptions) {
  const OpenedDevice opened = open_device("cpu:checked,sm80,seed=7,sms=3,workers=1,memory_mb=64,timeout_ms=5000");
  const CpuDriverOptions& options = opened.driver->cpu_options();
  EXPECT_TRUE(options.check_accesses);
  EXPECT_TRUE(options.poison);
  EXPECT_EQ(options.schedule, CpuSchedule::seeded);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.workers, 1);
  EXPECT_EQ(options.launch_timeout_ms, 5000u);
  EXPECT_EQ(opened.device->properties().cc_major, 8);
  EXPECT_EQ(opened.device->properties().sm_count, 3);
  EXPECT_EQ(opened.device->properties().total_bytes, 64u << 20);
}

TEST(DeviceSelection, RefusesAnUnknownSpecWithTheKnownOnes) {
  for (const char* spec : {"", "gpu", "cuda:x", "cuda:", "cpu:fast", "cpu:seed=", "cpu:seed=1x", "CPU"}) {
    try {
      open_device(spec);
      ADD_FAILURE() << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::usage) << spec;
      EXPECT_NE(std::string(error.what()).find("auto, cuda, cuda:N, cpu"), std::string::npos) << error.what();
    }
  }
}

// The CPU driver is never a fallback: without a GPU, "auto" is an error that names it.
TEST(DeviceSelection, AutoIsACudaDeviceOrAnErrorThatNamesTheCpu) {
  try {
    const OpenedDevice opened = open_device("auto");
    EXPECT_FALSE(opened.driver->is_cpu());
  } catch (const Error& error) {
    EXPECT_EQ(error.parts().fault, Fault::run_time);
    EXPECT_NE(std::string(error.what()).find("libcuda.so.1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nodewright
