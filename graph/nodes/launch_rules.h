// What a device and a kernel allow of a launch: checked when a node is added and when it is patched.
#pragma once

#include <string>
#include <string_view>

#include "graph/node.h"
#include "runtime/device.h"

namespace nodewright {

// Why a kernel cannot be launched with this shape and these attributes, with the limit that they break; empty when it
// can.
std::string launch_problem(const LoadedKernel& kernel, const LaunchShape& shape, const KernelAttributes& attributes,
                           const DeviceProperties& device);
// The same of a kernel node as it is planned.
inline std::string launch_problem(const PlanNode& node, const DeviceProperties& device) {
  return launch_problem(*node.kernel, node.shape, node.attributes, device);
}

// Why the driver would not launch a kernel with that much dynamic shared memory: it was allowed less. Asks the driver
// where the shape has more than every kernel may have.
std::string shared_problem(const LoadedKernel& kernel, const LaunchShape& shape);
inline constexpr std::string_view kAllowShared =
    "allow the most that it will ever have: KernelRequest::allow_shared, or ForeignKernel::allow_shared";

// Why a kernel cannot be launched on this device, with both: it was loaded on another one. Empty when it can.
std::string device_problem(const LoadedKernel& kernel, const Device& device);

}  // namespace nodewright
