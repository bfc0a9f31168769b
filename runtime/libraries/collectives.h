// One rank's end of a group of devices that exchange by calls of a library, where they do not write each other's
// memory: the form between processes and between machines.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace nodewright {

// Every rank makes the same calls in the same order. One thread at a time submits for a rank.
class Collectives {
 public:
  virtual ~Collectives() = default;
  Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  virtual size_t rank() const = 0;   // this one's
  virtual size_t ranks() const = 0;  // in all

  // Submits to `stream`, which runs or captures it: after it `to` holds `bytes` bytes of every rank, which it has at
  // `from`, in the order of the ranks. Waits for nothing. Throws Error where the library refuses.
  virtual void all_gather(CUstream stream, CUdeviceptr from, CUdeviceptr to, uint64_t bytes) = 0;
  // The same at once, on memory of the host: stands in for it on the CPU driver. Waits until all ranks have come.
  // Throws Error where that cannot be, or the group is given up.
  virtual void all_gather_on_host(const void* from, void* to, uint64_t bytes) = 0;

  // Ends what waits here for another rank, now and later; what comes of it means nothing. From any thread, any number
  // of times.
  virtual void give_up() noexcept = 0;
  virtual bool given_up() const noexcept = 0;
};

}  // namespace nodewright
