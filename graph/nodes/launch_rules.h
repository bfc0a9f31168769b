// What a device and a kernel allow of a launch: checked when a node is added and when it is patched.
#pragma once

#include <string>

#include "graph/node.h"
#include "runtime/device.h"

namespace nodewright {

// Why the kernel node's shape and attributes cannot be launched, with the limit that they break; empty when they can.
std::string launch_problem(const PlanNode& node, const DeviceProperties& device);

}  // namespace nodewright
