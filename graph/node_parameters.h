// A plan's node in the driver's words: the one place where a kernel, a copy or a fill is described to it, for all three
// runs and for patches.
#pragma once

#include <cuda.h>

#include <array>
#include <cstring>
#include <span>

#include "graph/node.h"

namespace nodewright {

// The one kernel parameter is the argument struct; the driver copies it when the node is added or launched.
// `argument` must stay where it is while the result is in use.
CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, void** argument);

// The address of the argument struct as the driver's structs want it. The driver does not write there.
void* argument_address(std::span<const std::byte> arguments);

// The same of a shape that differs from the node's, for patches.
CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, const LaunchShape& shape, void** argument);

// What a kernel's attributes are in the driver's words; only those that differ from the default.
struct LaunchAttributes {
  std::array<CUlaunchAttribute, 5> list{};
  unsigned count = 0;
};
LaunchAttributes launch_attributes(const KernelAttributes& attributes);

// For cuLaunchKernelEx. `attributes` is filled and must stay where it is while the result is in use.
CUlaunchConfig launch_config(const PlanNode& node, CUstream stream, bool programmatic, LaunchAttributes& attributes);

// Calls `f(address)` for every Condition field that is not empty and writes the Condition that it returns into
// `arguments`.
template <class Function>
void replace_conditions(const PlanNode& node, std::span<std::byte> arguments, Function&& f) {
  for (const FieldInfo& field : node.fields) {
    if (field.role != Role::condition) continue;
    Condition value;
    std::memcpy(&value, arguments.data() + field.offset, sizeof value);
    if (value.handle == 0) continue;
    value = f(value.handle);
    std::memcpy(arguments.data() + field.offset, &value, sizeof value);
  }
}
bool sets_conditions(const PlanNode& node);

CUDA_MEMCPY2D row_copy_parameters(const CopyParameters& copy);
CUDA_MEMCPY3D copy_parameters(const CopyParameters& copy);
CUDA_MEMSET_NODE_PARAMS fill_parameters(const FillParameters& fill);

// For cuGraphAddNode, and kinds that hold no plan and are no product: all bytes that the kind does not use are zero.
CUgraphNodeParams graph_node_parameters(const PlanNode& node, CUcontext context, void** argument);

// For cuGraphInstantiateWithParams.
cuuint64_t instantiation_flags(const Plan& plan);

// For cuGraphAddNode, and as cuGraphGetEdges returns it.
CUgraphEdgeData edge_data(EdgeType type);

}  // namespace nodewright
