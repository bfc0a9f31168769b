// The device's read bandwidth, measured beside whatever is to be compared with it.
#pragma once

#include <cstdint>

#include "graph/graph_builder.h"
#include "graph/run/eager_run.h"
#include "runtime/event.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// What a sample streams unless told otherwise: 4 GiB on a GPU, 64 MiB on the CPU driver.
uint64_t usual_read_bytes(const Device& device);

class ReadBandwidth {
 public:
  // Streams `bytes` of device memory a sample: several times the L2 for a figure about memory.
  ReadBandwidth(Device& device, const Stream& stream, KernelCache& kernels, uint64_t bytes);

  // Bytes per second of one pass.
  double sample();

 private:
  const Stream& stream_;
  DeviceBuffer data_, sum_;
  Plan plan_;
  Event start_, end_;
};

}  // namespace nodewright
