#include "graph/nodes/launch_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace nodewright {
namespace {

// CUDA C++ Programming Guide, "Technical specifications per compute capability": the same from 5.0 to 12.x, but for the
// threads of an SM, which are 2048 at 8.0 and 9.0 and fewer elsewhere.
constexpr unsigned kMaxGridX = 2147483647, kMaxGridYZ = 65535;
constexpr unsigned kMaxBlockXY = 1024, kMaxBlockZ = 64, kMaxBlockThreads = 1024;
constexpr unsigned kMaxThreadsOfSm = 2048, kMaxBlocksOfSm = 32, kRegistersOfSm = 65536;
// The same guide, "Thread block clusters": 8 blocks everywhere, 16 on an H100 for kernels that allow it, as those of a
// KernelCache do.
constexpr unsigned kMaxClusterBlocks = 16;

std::string shape_problem(const LoadedKernel& kernel, const LaunchShape& shape, const KernelAttributes& attributes,
                          const DeviceProperties& device) {
  const auto& [grid, block, shared_bytes, cluster, carveout] = shape;
  if (shape.cluster_blocks() != 1 && !std::equal(cluster, cluster + 3, attributes.cluster.begin()))
    return fmt::format("a cluster of {}x{}x{} blocks, and the attributes say {}x{}x{}", cluster[0], cluster[1],
                       cluster[2], attributes.cluster[0], attributes.cluster[1], attributes.cluster[2]);
  for (unsigned axis = 0; axis < 3; ++axis) {
    const unsigned grid_limit = axis == 0 ? kMaxGridX : kMaxGridYZ;
    const unsigned block_limit = axis == 2 ? kMaxBlockZ : kMaxBlockXY;
    if (grid[axis] == 0 || grid[axis] > grid_limit)
      return fmt::format("grid {} must be 1 to {}", "xyz"[axis], grid_limit);
    if (block[axis] == 0 || block[axis] > block_limit)
      return fmt::format("block {} must be 1 to {}", "xyz"[axis], block_limit);
  }
  const auto most_threads = static_cast<unsigned>(
      kernel.max_threads > 0 ? std::min<int>(kernel.max_threads, kMaxBlockThreads) : kMaxBlockThreads);
  if (shape.threads() > most_threads)
    return fmt::format("kernel '{}' takes at most {} threads a block", kernel.name, most_threads);
  if (shared_bytes + kernel.static_shared_bytes > device.shared_optin_bytes)
    return fmt::format("with {} static bytes that is more than the {} of {}", kernel.static_shared_bytes,
                       device.shared_optin_bytes, device.name);
  return "";
}

std::string attribute_problem(const LoadedKernel& kernel, const LaunchShape& shape, const KernelAttributes& attributes,
                              const DeviceProperties& device) {
  const auto& cluster = attributes.cluster;
  const uint64_t cluster_blocks = uint64_t{cluster[0]} * cluster[1] * cluster[2];
  if (cluster_blocks != 1) {
    const std::string text = fmt::format("cluster {}x{}x{}: ", cluster[0], cluster[1], cluster[2]);
    if (!device.has_clusters())
      return fmt::format("{}clusters need compute capability 9.0, and {} has {}.{}", text, device.name, device.cc_major,
                         device.cc_minor);
    if (cluster_blocks == 0 || cluster_blocks > kMaxClusterBlocks)
      return fmt::format("{}a cluster has 1 to {} blocks", text, kMaxClusterBlocks);
    for (unsigned axis = 0; axis < 3; ++axis)
      if (shape.grid[axis] % cluster[axis] != 0)
        return fmt::format("{}grid {} is not a multiple of the cluster's", text, "xyz"[axis]);
  }
  if (attributes.cooperative) {
    const uint64_t threads = shape.threads();
    uint64_t of_sm = std::min<uint64_t>(kMaxThreadsOfSm / threads, kMaxBlocksOfSm);
    if (kernel.registers > 0)
      of_sm = std::min(of_sm, kRegistersOfSm / (static_cast<uint64_t>(kernel.registers) * threads));
    const unsigned green = attributes.green.multiprocessors;
    const uint64_t most = of_sm * (green != 0 ? green : static_cast<uint64_t>(device.sm_count));
    if (shape.blocks() > most)
      return fmt::format("cooperative: at most {} blocks of {} threads are on {} at once", most, threads,
                         green != 0 ? fmt::format("{} multiprocessors", green) : device.name);
  }
  if ((attributes.green.context == nullptr) != (attributes.green.multiprocessors == 0))
    return "a green context goes with the number of its multiprocessors (GreenContext::place)";
  if (attributes.green.context != nullptr && kernel.device != nullptr &&
      attributes.green.context == kernel.device->context())
    return fmt::format("its green context is the context of {} itself: leave it out", device.name);
  if (attributes.green.context != nullptr && kernel.kernel == nullptr)
    return fmt::format("a green context takes a CUkernel, and kernel '{}' was borrowed as a CUfunction", kernel.name);
  if (attributes.priority < device.greatest_priority || attributes.priority > device.least_priority)
    return fmt::format("priority {}: {} takes {} (first) to {} (last)", attributes.priority, device.name,
                       device.greatest_priority, device.least_priority);
  if (attributes.shared_carveout_percent < -1 || attributes.shared_carveout_percent > 100)
    return fmt::format("a shared carve-out of {} percent", attributes.shared_carveout_percent);
  return "";
}

}  // namespace

std::string launch_problem(const LoadedKernel& kernel, const LaunchShape& shape, const KernelAttributes& attributes,
                           const DeviceProperties& device) {
  std::string limit = shape_problem(kernel, shape, attributes, device);
  if (limit.empty()) limit = attribute_problem(kernel, shape, attributes, device);
  if (limit.empty()) return "";
  const auto& [grid, block, shared_bytes, cluster, carveout] = shape;
  return fmt::format("grid {}x{}x{}, block {}x{}x{}, {} shared bytes: {}", grid[0], grid[1], grid[2], block[0],
                     block[1], block[2], shared_bytes, limit);
}

std::string shared_problem(const LoadedKernel& kernel, const LaunchShape& shape) {
  if (kernel.device == nullptr || kernel.static_shared_bytes + shape.shared_bytes <= kSharedBytesWithoutAsking)
    return "";
  const unsigned allowed = allowed_dynamic_shared(kernel);
  if (shape.shared_bytes <= allowed) return "";
  return fmt::format("{} bytes of dynamic shared memory a block, and kernel '{}' is allowed {}", shape.shared_bytes,
                     kernel.name, allowed);
}

std::string device_problem(const LoadedKernel& kernel, const Device& device) {
  if (kernel.device == nullptr || kernel.device->context() == device.context()) return "";
  return fmt::format("kernel '{}' was loaded on {}, and the plan is for {}", kernel.name,
                     describe_device(*kernel.device), describe_device(device));
}

}  // namespace nodewright
