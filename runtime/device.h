// One device and its primary context, current on the thread that opened it until it is closed. Every other handle
// refers to it and must not outlive it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/driver.h"
#include "runtime/live_buffers.h"

namespace nodewright {

struct DeviceProperties {
  std::string name;
  int ordinal = 0;
  int sm_count = 0;
  int cc_major = 0, cc_minor = 0;
  uint64_t total_bytes = 0;         // device memory
  unsigned shared_optin_bytes = 0;  // most dynamic shared memory of one block, once the kernel has asked for it
  uint64_t l2_bytes = 0;
  int max_threads_per_block = 0;
  int least_priority = 0, greatest_priority = 0;  // of kernels: lower numbers go first

  bool has_clusters() const { return cc_major >= 9; }  // CUDA programming guide, "Thread block clusters"
};

class Device {
 public:
  // cuInit, retains the primary context of `ordinal` and makes it current. Throws Error when there is no such device.
  Device(Driver& driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Driver& driver() const { return driver_; }
  CUdevice get() const { return device_; }
  CUcontext context() const { return context_; }
  const DeviceProperties& properties() const { return properties_; }
  const std::string& name() const { return properties_.name; }
  LiveBuffers& buffers() { return buffers_; }
  const LiveBuffers& buffers() const { return buffers_; }

  // Free device memory now, in bytes, as the driver sees it.
  uint64_t free_bytes() const;
  // To be called once by every thread that makes driver calls.
  void make_current() const;
  // Waits for everything submitted to the device.
  void synchronize() const;

 private:
  void read_properties(int ordinal);
  void read_priorities();
  void close() noexcept;

  Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUcontext previous_ = nullptr;  // current again once this device is closed
  DeviceProperties properties_;
  LiveBuffers buffers_;
};

}  // namespace nodewright
