#include "runtime/device.h"

#include <cstdlib>

#include "kernels_src/architecture.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// The driver counts only what this variable names. Empty where it is not set.
std::string visible_devices(const Driver& driver) {
  const char* visible = driver.is_cpu() ? nullptr : std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : std::string("CUDA_VISIBLE_DEVICES is '") + visible + "'";
}

// As kernels_src/architecture.h counts.
int arch_of(const DeviceProperties& device) { return 100 * device.cc_major + 10 * device.cc_minor; }

}  // namespace

Device::Device(Driver& driver, int ordinal) : driver_(driver) {
  const std::string visible = visible_devices(driver);
  driver_.check(driver_.cuInit(0), "cuInit", "start the driver", driver_.path(), visible,
                driver_.is_cpu() ? "" : "check that nvidia-smi lists a device, or " + std::string(kUseCpuDriver));
  int count = 0;
  driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount", "count the devices of", driver_.path());
  const std::string kind = driver_.is_cpu() ? "cpu:" : "cuda:", name = kind + std::to_string(ordinal);
  if (ordinal < 0 || ordinal >= count)
    throw Error({.doing = "open device",
                 .object = name,
                 .detail = "the driver has " + std::to_string(count) + (count == 1 ? " device" : " devices") +
                           (visible.empty() ? "" : ", " + visible),
                 .advice = count == 0   ? std::string(kUseCpuDriver)
                           : count == 1 ? "use " + kind + "0"
                                        : "use one of " + kind + "0 to " + kind + std::to_string(count - 1),
                 .fault = count == 0 ? Fault::run_time : Fault::usage});
  driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet", "open device", name);
  read_properties(ordinal);
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain",
                "retain the primary context of", name);
  try {
    read_priorities();
  } catch (...) {
    driver_.cuDevicePrimaryCtxRelease(device_);
    throw;
  }
  retained_ = true;
}

Device::Device(Driver& driver, CUcontext context) : driver_(driver), context_(context) {
  driver_.check(driver_.cuInit(0), "cuInit", "start the driver", driver_.path());
  const ContextGuard current(driver_, context_, "an adopted device");
  driver_.check(driver_.cuCtxGetDevice(&device_), "cuCtxGetDevice", "adopt", "a context");
  int ordinal = 0, count = 0;
  driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount", "count the devices of", driver_.path());
  for (CUdevice device = 0; ordinal < count; ++ordinal)
    if (driver_.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS && device == device_) break;
  read_properties(ordinal);
  read_priorities();
}

bool DeviceProperties::has_clusters() const { return arch_of(*this) >= NODEWRIGHT_CLUSTERS_FROM; }
bool DeviceProperties::has_programmatic_launch() const { return arch_of(*this) >= NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM; }
bool DeviceProperties::has_bulk_copies() const { return arch_of(*this) >= NODEWRIGHT_BULK_COPIES_FROM; }

// 16 are an opt-in of H100 and B200 (Hopper and Blackwell Tuning Guides, "Thread Block Clusters"), 8 the portable size.
unsigned DeviceProperties::cluster_blocks() const {
  if (!has_clusters()) return 1;
  return cc_major == 9 || cc_major == 10 ? 16 : 8;
}

Device::~Device() {
  if (retained_) driver_.cuDevicePrimaryCtxRelease(device_);
}

uint64_t Device::free_bytes() const {
  const ContextGuard current(*this);
  size_t free = 0, total = 0;
  driver_.check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo", "read the free memory of", name());
  return free;
}

void Device::synchronize() const {
  const ContextGuard current(*this);
  driver_.check(driver_.cuCtxSynchronize(), "cuCtxSynchronize", "wait for device", name());
}

void Device::read_properties(int ordinal) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver_.check(driver_.cuDeviceGetAttribute(&value, which, device_), "cuDeviceGetAttribute",
                  "read a property of device", std::to_string(ordinal), "attribute " + std::to_string(which));
    return value;
  };
  char name[256] = {};
  driver_.check(driver_.cuDeviceGetName(name, sizeof name - 1, device_), "cuDeviceGetName", "read the name of device",
                std::to_string(ordinal));
  size_t total = 0;
  driver_.check(driver_.cuDeviceTotalMem(&total, device_), "cuDeviceTotalMem", "read the memory size of", name);
  properties_.name = name;
  properties_.ordinal = ordinal;
  properties_.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties_.cc_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties_.cc_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties_.total_bytes = total;
  properties_.shared_optin_bytes =
      static_cast<unsigned>(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  properties_.l2_bytes = static_cast<uint64_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  properties_.max_threads_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties_.memory_pools = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0;
  properties_.wide_values = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
  properties_.waits_for_zeros = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR) != 0;
}

void Device::read_priorities() {
  const ContextGuard current(*this);
  driver_.check(driver_.cuCtxGetStreamPriorityRange(&properties_.least_priority, &properties_.greatest_priority),
                "cuCtxGetStreamPriorityRange", "read the priorities of", name());
}

std::string describe_device(const Device& device) {
  return "'" + device.name() + "' (device " + std::to_string(device.properties().ordinal) + ")";
}

}  // namespace nodewright
