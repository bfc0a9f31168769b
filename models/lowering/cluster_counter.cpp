#include "models/lowering/cluster_counter.h"

#include "kernels_src/step/advance.h"
#include "runtime/context_guard.h"

namespace nodewright {

int64_t ClusterCounter::count(int64_t blocks) {
  if (const auto found = counts_.find(blocks); found != counts_.end()) return found->second;
  Device& device = cache_.device();
  const Driver& driver = device.driver();
  const ContextGuard current(device);
  const KernelRequest request{"advance", {}};  // the one kernel of steps without constants
  if (!library_) library_.emplace(device, request.name, cache_.image(request));
  CUfunction function = nullptr;
  driver.check(driver.cuKernelGetFunction(&function, library_->kernel(request.name)), "cuKernelGetFunction",
               "load kernel", request.name);
  const unsigned shared_bytes = device.properties().shared_optin_bytes;  // more than half an SM's
  driver.check(driver.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         static_cast<int>(shared_bytes)),
               "cuFuncSetAttribute", "reserve shared memory for kernel", request.name);
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(blocks), config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = kAdvanceThreads, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  driver.check(driver.cuOccupancyMaxActiveClusters(&clusters, function, &config), "cuOccupancyMaxActiveClusters",
               "count the clusters that run at once on", device.name(), std::to_string(blocks) + " blocks each");
  return counts_[blocks] = clusters;
}

}  // namespace nodewright
