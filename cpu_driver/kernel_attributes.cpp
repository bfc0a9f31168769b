#include "cpu_driver/kernel_attributes.h"

#include <algorithm>
#include <cstring>

#include "cpu_driver/blocks/block_runner.h"
#include "cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

// CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED in cuda.h: the portable size for sm_90 is 8.
constexpr uint64_t kPortableCluster = 8;
constexpr unsigned kDomainsOfMap = 4;  // as many as any device of compute capability 9.0 has

std::string text_of(const emulation::Index3& i) {
  return std::to_string(i.x) + "x" + std::to_string(i.y) + "x" + std::to_string(i.z);
}

uint64_t product(const emulation::Index3& i) { return uint64_t{i.x} * i.y * i.z; }

CUresult check_cluster(const State& state, const KernelWork& work) {
  const emulation::Index3& cluster = work.attributes.cluster;
  const uint64_t blocks = product(cluster);
  if (blocks == 1) return CUDA_SUCCESS;
  const std::string what = "kernel " + work.loaded->image->name + ": a cluster of " + text_of(cluster) + " blocks";
  if (state.options.compute_capability < 90)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, what + " needs compute capability 9.0");
  const uint64_t most = work.loaded->large_clusters ? kMaxClusterBlocks : kPortableCluster;
  if (blocks > most)
    return refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                  what + ", at most " + std::to_string(most) +
                      (work.loaded->large_clusters
                           ? ""
                           : " without CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED on the function"));
  if (work.grid.x % cluster.x != 0 || work.grid.y % cluster.y != 0 || work.grid.z % cluster.z != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, what + " does not divide the grid of " + text_of(work.grid));
  return CUDA_SUCCESS;
}

uint64_t multiprocessors_for(const State& state, const KernelWork& work) {
  return work.green != nullptr ? work.green->multiprocessors : static_cast<uint64_t>(state.options.sm_count);
}

CUresult check_cooperative(const State& state, const KernelWork& work) {
  if (!work.attributes.cooperative) return CUDA_SUCCESS;
  const std::string what = "kernel " + work.loaded->image->name + ": a cooperative launch";
  if (work.by_extra) return refuse(CUDA_ERROR_INVALID_VALUE, what + " with arguments through `extra`");
  const int per_sm = blocks_per_multiprocessor(state, *work.loaded, product(work.block), work.shared_bytes);
  const uint64_t resident = static_cast<uint64_t>(per_sm) * multiprocessors_for(state, work);
  if (product(work.grid) > resident)
    return refuse(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, what + " of " + std::to_string(product(work.grid)) +
                                                               " blocks, " + std::to_string(resident) +
                                                               " can be resident at once");
  return CUDA_SUCCESS;
}

CUresult out_of_range(const char* what) {
  return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the ") + what + " is out of range");
}

// CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE in cuda.h: 0 or 1, and no way back.
CUresult set_updatable(KernelAttributes& attributes, int updatable) {
  if (updatable != 0 && updatable != 1) return out_of_range("word for a kernel that the device may update");
  if (updatable == 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "a kernel that the device may update stays so, and others need no 0");
  static uint64_t last = 0;
  if (attributes.device_node == nullptr)
    attributes.device_node = reinterpret_cast<CUgraphDeviceNode>(kDeviceNodeHandles | ++last);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult get_attribute(const KernelAttributes& attributes, CUlaunchAttributeID id, CUlaunchAttributeValue& value) {
  memset(&value, 0, sizeof value);
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      value.clusterDim = {attributes.cluster.x, attributes.cluster.y, attributes.cluster.z};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      value.cooperative = attributes.cooperative ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value.priority = attributes.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value.sharedMemCarveout = attributes.shared_carveout_percent;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      value.memSyncDomain = attributes.domain;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value.memSyncDomainMap = attributes.domain_map;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      value.deviceUpdatableKernelNode.deviceUpdatable = attributes.device_node != nullptr ? 1 : 0;
      value.deviceUpdatableKernelNode.devNode = attributes.device_node;
      return CUDA_SUCCESS;
    default:
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "kernel attribute " + std::to_string(id) + " on the CPU driver");
  }
}

CUresult set_attribute(KernelAttributes& attributes, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      attributes.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
      return product(attributes.cluster) > 0 ? CUDA_SUCCESS : out_of_range("cluster dimension");
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      attributes.cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      attributes.priority = value.priority;  // kept as asked for, clamped at the launch (cuGraphExecUpdate in cuda.h)
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      attributes.shared_carveout_percent = value.sharedMemCarveout;
      return value.sharedMemCarveout <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED ||
                     value.sharedMemCarveout == static_cast<unsigned>(CU_SHAREDMEM_CARVEOUT_DEFAULT)
                 ? CUDA_SUCCESS
                 : out_of_range("shared memory carveout");
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      attributes.domain = value.memSyncDomain;
      return value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ||
                     value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE
                 ? CUDA_SUCCESS
                 : out_of_range("memory synchronization domain");
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      attributes.domain_map = value.memSyncDomainMap;
      return value.memSyncDomainMap.default_ < kDomainsOfMap && value.memSyncDomainMap.remote < kDomainsOfMap
                 ? CUDA_SUCCESS
                 : out_of_range("map of memory synchronization domains");
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return set_updatable(attributes, value.deviceUpdatableKernelNode.deviceUpdatable);
    default:
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "kernel attribute " + std::to_string(id) + " on the CPU driver");
  }
}

CUresult check_attributes(const State& state, const KernelWork& work) {
  const CUresult result = check_cluster(state, work);
  return result != CUDA_SUCCESS ? result : check_cooperative(state, work);
}

// Threads of an SM on a GPU for kernels of 64 registers: nothing here knows how many a kernel has.
constexpr uint64_t kThreadsOfSm = 1024;

int blocks_per_multiprocessor(const State& state, const LoadedImage& loaded, uint64_t threads, uint64_t shared_bytes) {
  if (threads == 0 || threads > loaded.image->max_threads || shared_bytes > shared_limit_bytes(state)) return 0;
  const uint64_t by_threads = std::max<uint64_t>(kThreadsOfSm / threads, 1);
  const uint64_t by_shared = shared_bytes == 0 ? by_threads : shared_limit_bytes(state) / shared_bytes;
  return static_cast<int>(std::min(by_threads, by_shared));
}

uint64_t resident_clusters(const State& state, const KernelWork& work) {
  const int per_sm = blocks_per_multiprocessor(state, *work.loaded, product(work.block), work.shared_bytes);
  return static_cast<uint64_t>(per_sm) * multiprocessors_for(state, work) / product(work.attributes.cluster);
}

uint32_t shared_limit_bytes(const State& state) {
  return state.options.compute_capability == 80 ? 163u << 10 : kMaxSharedBytes;
}

int memory_domains(const State& state) { return state.options.compute_capability >= 90 ? 4 : 1; }

}  // namespace nodewright::cpu
