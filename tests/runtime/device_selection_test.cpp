#include "runtime/device_selection.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/calls/cpu_driver_api.h"
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
  for (const char* spec :
       {"", "gpu", "cuda:x", "cuda:", "cpu:fast", "cpu:seed=", "cpu:seed=1x", "CPU", "cpu:", "cpu:checked,"}) {
    try {
      open_device(spec);
      ADD_FAILURE() << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::usage) << spec;
      EXPECT_NE(std::string(error.what()).find("auto, cuda, cuda:N, cpu"), std::string::npos) << error.what();
    }
  }
}

TEST(DeviceSelection, RefusesOptionsOfTheCpuDriverThatMeanNothing) {
  for (const auto& [spec, words] : {std::pair{"cpu:workers=0", "'workers=0' is outside 1 to 1024"},
                                    std::pair{"cpu:sms=0", "'sms=0' is outside 1 to 1024"},
                                    std::pair{"cpu:devices=9", "'devices=9' is outside 1 to 8"},
                                    std::pair{"cpu:memory_mb=0", "'memory_mb=0' is outside 1 to "},
                                    std::pair{"cpu:memory_mb=18446744073709551615", "is outside 1 to "},
                                    std::pair{"cpu:timeout_ms=0", "'timeout_ms=0' is outside 1 to "},
                                    std::pair{"cpu:workers=4294967297", "is outside 1 to 1024"},
                                    std::pair{"cpu:sm80,sm90", "'sm80' and 'sm90' contradict each other"},
                                    std::pair{"cpu:forward,seed=2", "'forward' and 'seed=2' contradict each other"},
                                    std::pair{"cpu:sms=2,sms=3", "'sms=2' and 'sms=3' contradict each other"}}) {
    try {
      open_device(spec);
      ADD_FAILURE() << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::usage) << spec;
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
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
    EXPECT_NE(std::string(error.what()).find("open_device(\"cpu\")"), std::string::npos) << error.what();
  }
}

TEST(DeviceSelection, NamesAsManyDevicesAsAreNeeded) {
  const auto chosen = [](const char* spec, int count) { return choose_devices(spec, count, "--replicas 2"); };
  EXPECT_EQ(chosen("auto", 2).ordinals, (std::vector{0, 1}));
  EXPECT_EQ(chosen("cuda", 3).ordinals, (std::vector{0, 1, 2}));
  EXPECT_EQ(chosen("cuda:5", 1).ordinals, (std::vector{5}));
  EXPECT_EQ(chosen("cuda:2,0", 2).ordinals, (std::vector{2, 0}));
  EXPECT_EQ(chosen("cuda:2,0", 2).driver, "cuda");
  EXPECT_EQ(chosen("cpu:sms=2,devices=4", 2).ordinals, (std::vector{0, 1}));
  EXPECT_EQ(chosen("cpu:sms=2,devices=4", 2).driver, "cpu:sms=2,devices=4");
  for (const auto& [spec, words] :
       {std::pair{"cuda:0", "it names 1 device, and --replicas 2 needs 2"},
        std::pair{"cuda:0,1,2", "it names 3 devices, and --replicas 2 needs 2"},
        std::pair{"cuda:1,1", "device 1 is there twice"}, std::pair{"cuda:0,", "'' is no device number"},
        std::pair{"cuda:0,cuda:1", "'cuda:1' is no device number"},
        std::pair{"cpu", "the CPU driver has 1 device, and --replicas 2 needs 2"}}) {
    try {
      chosen(spec, 2);
      ADD_FAILURE() << spec;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::usage) << spec;
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(DeviceSelectionOnCpuDriver, OpensSeveralDevicesOfOneDriver) {
  const DeviceChoice choice = choose_devices("cpu:devices=2", 2, "--replicas 2");
  const std::shared_ptr<Driver> driver = open_driver(choice.driver);
  const OpenedDevice first = open_device(driver, 0), second = open_device(driver, 1);
  EXPECT_EQ(first.device->properties().ordinal, 0);
  EXPECT_EQ(second.device->properties().ordinal, 1);
  EXPECT_NE(first.device->context(), second.device->context());
}

}  // namespace
}  // namespace nodewright
