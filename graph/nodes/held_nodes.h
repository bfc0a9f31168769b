// What the driver holds for a graph, in a plan's words: the other way round than node_parameters.h. For read_back,
// which compares it with a plan, and for read_graph, which makes a plan of it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/node.h"
#include "runtime/kernels/parameter_layout.h"

namespace nodewright {

// Those that take `name`, of the node or the plan, call the driver, and throw Error with it when that fails.

std::vector<CUgraphNode> held_nodes(const Driver& driver, CUgraph graph, std::string_view name);

struct HeldEdge {
  CUgraphNode from = nullptr, to = nullptr;
  CUgraphEdgeData data{};
};
std::vector<HeldEdge> held_edges(const Driver& driver, CUgraph graph, std::string_view name);
// An edge as a plan has it, without its ends and reasons.
Edge edge_of(const CUgraphEdgeData& data);

CUgraphNodeType held_type(const Driver& driver, CUgraphNode node, std::string_view name);

// What it points at belongs to the node: it is only read.
CUDA_KERNEL_NODE_PARAMS held_kernel(const Driver& driver, CUgraphNode node, std::string_view name);

// Those of the kernel that a node launches.
std::vector<KernelParameter> held_parameters(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& kernel,
                                             std::string_view name);
// A kernel's arguments, copied, as its parameters lie in their block. Bytes between them are 0.
std::vector<std::byte> held_arguments(const CUDA_KERNEL_NODE_PARAMS& kernel,
                                      std::span<const KernelParameter> parameters);

KernelAttributes held_attributes(const Driver& driver, CUgraphNode node, std::string_view name);

// The green context that a kernel node runs in: one of fewer multiprocessors than the device has.
GreenPlace held_green(const Device& device, const CUDA_KERNEL_NODE_PARAMS& kernel);

CUDA_MEMCPY3D held_copy(const Driver& driver, CUgraphNode node, std::string_view name);
// Nothing for a copy that no plan can say: of planes whose rows do not lie at one distance, or of an array of an
// unusual format.
std::optional<CopyParameters> copy_of(const Device& device, const CUDA_MEMCPY3D& held);

// What it does with memory that is no array, a use a row: each with its address as its offset, and in no buffer.
std::vector<Use> linear_uses(const Device& device, const CUDA_MEMCPY3D& held);

FillParameters held_fill(const Driver& driver, CUgraphNode node, std::string_view name);

CUDA_BATCH_MEM_OP_NODE_PARAMS held_values(const Driver& driver, CUgraphNode node, std::string_view name);
// Nothing for an operation other than a wait and a write.
std::optional<ValueOperation> operation_of(const CUstreamBatchMemOpParams& held);

// `type`: a signal's or a wait's.
std::vector<SemaphoreParameters> held_semaphores(const Driver& driver, CUgraphNode node, CUgraphNodeType type,
                                                 std::string_view name);

}  // namespace nodewright
