// Attributes of a kernel launch or kernel node beside its parameters, with the limits that cuda.h and the Programming
// Guide state. Blocks of a cluster run together; with all others only the limits and the values read back are the
// device's.
#pragma once

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/kernel_abi.h"

namespace nodewright::cpu {

struct KernelWork;
struct LoadedImage;
struct State;

struct KernelAttributes {
  emulation::Index3 cluster{1, 1, 1};  // blocks
  bool cooperative = false;
  int priority = 0;
  unsigned shared_carveout_percent = CU_SHAREDMEM_CARVEOUT_DEFAULT;  // as unsigned: ~0u
  CUlaunchMemSyncDomain domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
  CUlaunchMemSyncDomainMap domain_map{.default_ = 0, .remote = 1};
  CUgraphDeviceNode device_node = nullptr;  // the device may update the node: a number in place of a handle
};

// Reads or changes one attribute. CUDA_ERROR_NOT_SUPPORTED for those that this driver does not know.
CUresult get_attribute(const KernelAttributes& attributes, CUlaunchAttributeID id, CUlaunchAttributeValue& value);
CUresult set_attribute(KernelAttributes& attributes, CUlaunchAttributeID id, const CUlaunchAttributeValue& value);

// The attributes against the launch that they belong to: its grid, its kernel, the device.
CUresult check_attributes(const State& state, const KernelWork& work);

// Resident blocks of a launch on one multiprocessor; 0 if it does not fit.
int blocks_per_multiprocessor(const State& state, const LoadedImage& loaded, uint64_t threads, uint64_t shared_bytes);

// Clusters of a launch, mostly single blocks, that the device runs at once, if it runs nothing else.
uint64_t resident_clusters(const State& state, const KernelWork& work);

// Opt-in limit of dynamic shared memory a block, bytes.
uint32_t shared_limit_bytes(const State& state);

// 4 from compute capability 9.0 on, 1 before (CUDA C++ Programming Guide, "Memory Synchronization Domains").
int memory_domains(const State& state);

}  // namespace nodewright::cpu
