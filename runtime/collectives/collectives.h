// What the devices of a group exchange by calls, one process or several: the form of an exchange that a library makes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/driver.h"

namespace nodewright {

// One rank's end of a group of devices. The calls of all ranks pair up in their order.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual size_t rank() const = 0;
  virtual size_t ranks() const = 0;
  // Submits to `stream` (captured or run): behind it `to` holds `bytes` bytes of every rank, in the order of the ranks.
  virtual void all_gather(CUstream stream, CUdeviceptr from, CUdeviceptr to, uint64_t bytes) = 0;
  // The same at once, on the host: stands in for it on the CPU driver. Blocks until all ranks have come.
  virtual void all_gather_on_host(const void* from, void* to, uint64_t bytes) = 0;
  // Ends what waits for another rank, here; what it computes then means nothing. Any thread, any number of times.
  virtual void give_up() noexcept = 0;
};

}  // namespace nodewright
