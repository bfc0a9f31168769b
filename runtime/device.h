// One device and a context of it. Every function that takes a device, or an object made on one, makes the context
// current during the call and leaves the thread as it was: several devices may be used on one thread, and one on
// several threads. Every other handle refers to the device and must not outlive it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/driver.h"
#include "runtime/memory/array_places.h"
#include "runtime/memory/live_buffers.h"

namespace nodewright {

// What the driver says of a device.
struct DeviceProperties {
  std::string name;                 // "NVIDIA H100 80GB HBM3"
  int ordinal = 0;                  // among the devices that the process sees
  int sm_count = 0;                 // multiprocessors
  int cc_major = 0, cc_minor = 0;   // compute capability
  uint64_t total_bytes = 0;         // device memory
  unsigned shared_optin_bytes = 0;  // most dynamic shared memory of one block, once the kernel has asked for it
  uint64_t l2_bytes = 0;            // second-level cache
  int max_threads_per_block = 0;    // of any kernel
  bool memory_pools = false;        // allocations in the order of a stream or a graph
  bool wide_values = false;         // values nodes of 64 bits (cuStreamBatchMemOp)
  bool waits_for_zeros = false;     // Until::any_zero
  int least_priority = 0, greatest_priority = 0;  // of kernels: lower numbers go first

  // kernels_src/architecture.h says from which compute capability on.
  bool has_clusters() const;
  bool has_programmatic_launch() const;
  bool has_bulk_copies() const;  // cp.async.bulk; the CPU driver copies by threads, whatever it reports
  // Blocks of a cluster, at most, that every device of this compute capability takes; 1: there are none. A device may
  // take more.
  unsigned cluster_blocks() const;
};

// May be used by several threads at once. Must outlive all that is made on it.
class Device {
 public:
  // cuInit, retains the primary context of `ordinal`. Throws Error when there is no such device.
  Device(Driver& driver, int ordinal);
  // A device over a context of another owner, such as a framework, which keeps the context until the Device and all
  // that was made on it are gone. Throws Error when the driver does not know the context.
  static Device adopt(Driver& driver, CUcontext context) { return Device(driver, context); }
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Driver& driver() const { return driver_; }                          // that it was opened with
  CUdevice get() const { return device_; }                            // the driver's handle
  CUcontext context() const { return context_; }                      // the driver's handle
  const DeviceProperties& properties() const { return properties_; }  // read once
  const std::string& name() const { return properties_.name; }        // of properties()
  // The DeviceBuffers and PinnedBuffers that live, by address.
  LiveBuffers& buffers() { return buffers_; }
  const LiveBuffers& buffers() const { return buffers_; }
  // Where plans place its arrays.
  ArrayPlaces& arrays() const { return arrays_; }

  // Free device memory now, in bytes, as the driver sees it.
  uint64_t free_bytes() const;
  // Waits for everything submitted to the device.
  void synchronize() const;

 private:
  Device(Driver& driver, CUcontext context);
  void read_properties(int ordinal);
  void read_priorities();

  Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool retained_ = false;  // the primary context, to be released
  DeviceProperties properties_;
  LiveBuffers buffers_;
  mutable ArrayPlaces arrays_;
};

// "'NVIDIA H100 80GB HBM3' (device 0)", for errors.
std::string describe_device(const Device& device);

}  // namespace nodewright
