// A plan's node in the driver's words: the one place where a kernel, a copy or a fill is described to it, for all three
// runs and for patches.
#pragma once

#include <cuda.h>

#include <span>

#include "graph/node.h"

namespace nodewright {

// The one kernel parameter is the argument struct; the driver copies it when the node is added or launched.
// `argument` must stay where it is while the result is in use.
CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, void** argument);

// The address of the argument struct as the driver's structs want it. The driver does not write there.
void* argument_address(std::span<const std::byte> arguments);

// For cuLaunchKernelEx. `attribute` is filled and used only when `programmatic`.
CUlaunchConfig launch_config(const PlanNode& node, CUstream stream, bool programmatic, CUlaunchAttribute* attribute);

CUDA_MEMCPY3D copy_parameters(const CopyParameters& copy);

// For cuGraphAddNode: all bytes that the kind does not use are zero.
CUgraphNodeParams graph_node_parameters(const PlanNode& node, CUcontext context, void** argument);

// For cuGraphAddNode, and as cuGraphGetEdges returns it.
CUgraphEdgeData edge_data(EdgeType type);

}  // namespace nodewright
