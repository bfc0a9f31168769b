// How many clusters of blocks a device runs at once, as its driver counts them: SMs come in groups (GPCs) of unequal
// size, and a cluster has all of its blocks in one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "runtime/kernels/kernel_cache.h"
#include "runtime/kernels/library.h"

namespace nodewright {

// One thread at a time. The cache must outlive it.
class ClusterCounter {
 public:
  explicit ClusterCounter(KernelCache& cache) : cache_(cache) {}

  // Clusters of `blocks` blocks, each block alone on its SM. Asks once for each size. Throws Error where the device has
  // no clusters of that size.
  int64_t count(int64_t blocks);

 private:
  KernelCache& cache_;
  std::optional<Library> library_;     // of a kernel to ask with, which any may be; it goes with the counter, so that
  std::map<int64_t, int64_t> counts_;  // kernels of steps lie in memory as they would without it
};

}  // namespace nodewright
