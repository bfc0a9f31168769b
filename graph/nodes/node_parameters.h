// A plan's node in the driver's words: the one place where a kernel, a copy or a fill is described to it, for all three
// runs and for patches.
#pragma once

#include <cuda.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "graph/edges/allocated_memory.h"
#include "graph/node.h"

namespace nodewright {

// Where each of a kernel's parameters lies in `arguments`, the node's own or others of its layout, as the driver's
// structs want it; the driver copies them when the node is added or launched, and writes nothing there. Both must stay
// where they are while the pointers are in use. Other kinds of nodes have none.
class ParameterPointers {
 public:
  // `kernel`: null for a node of another kind.
  ParameterPointers(const LoadedKernel* kernel, std::span<const std::byte> arguments);
  ParameterPointers(const PlanNode& node, std::span<const std::byte> arguments)
      : ParameterPointers(node.kernel, arguments) {}
  explicit ParameterPointers(const PlanNode& node) : ParameterPointers(node, node.arguments) {}
  ParameterPointers(const ParameterPointers&) = delete;
  ParameterPointers& operator=(const ParameterPointers&) = delete;

  void** get() { return many_.empty() ? few_.data() : many_.data(); }

 private:
  std::array<void*, 16> few_;
  std::vector<void*> many_;  // where there are more
};

CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, void** parameters);

// The same of a kernel and a shape that may differ from a node's, for patches.
CUDA_KERNEL_NODE_PARAMS kernel_parameters(const LoadedKernel& kernel, const LaunchShape& shape, void** parameters,
                                          const GreenPlace& green = {});

// A kernel node as it is added to a graph.
CUgraphNodeParams kernel_node(const CUDA_KERNEL_NODE_PARAMS& kernel);

// What a kernel's attributes are in the driver's words; only those that differ from the default.
struct LaunchAttributes {
  std::array<CUlaunchAttribute, 5> list{};
  unsigned count = 0;
};
LaunchAttributes launch_attributes(const KernelAttributes& attributes);

// For cuLaunchKernelEx. `attributes` is filled and must stay where it is while the result is in use.
CUlaunchConfig launch_config(const PlanNode& node, CUstream stream, bool programmatic, LaunchAttributes& attributes);

// Calls `f(address)` for every condition among the arguments that is not empty, and writes the Condition that it
// returns into `arguments`: for a foreign kernel its handle alone.
template <class Function>
void replace_conditions(const PlanNode& node, std::span<std::byte> arguments, Function&& f) {
  for (const FieldInfo& field : node.fields) {
    if (field.role != Role::condition) continue;
    Condition value{};
    std::memcpy(&value, arguments.data() + field.offset, field.bytes);
    if (value.handle == 0) continue;
    value = f(value.handle);
    std::memcpy(arguments.data() + field.offset, &value, field.bytes);
  }
}
bool sets_conditions(const PlanNode& node);
// The first node of the plan, or of one inside it, whose foreign kernel takes the driver's handle of a condition; null
// when there is none. Only a graph has handles.
const PlanNode* first_with_handle(const Plan& plan);

// The driver's parameters of a values node, for its own operations or others of the same layout.
std::vector<CUstreamBatchMemOpParams> value_parameters(const std::vector<ValueOperation>& operations);
CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal_parameters(const SemaphoreParameters& semaphore);
CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait_parameters(const SemaphoreParameters& semaphore);

CUDA_MEMCPY2D row_copy_parameters(const CopyParameters& copy);
CUDA_MEMCPY3D copy_parameters(const CopyParameters& copy);
CUDA_MEMSET_NODE_PARAMS fill_parameters(const FillParameters& fill);

// For cuGraphAddNode, and kinds that hold no plan and call no library: all bytes that the kind does not use are zero.
// `memory`: where the plan's own memory is; `parameters` point at arguments with its addresses. Those of a values or
// semaphore node point into `kept`, of which all else stays as it is: hundreds of bytes that no other node needs to
// clear.
struct KeptParameters {
  std::vector<CUstreamBatchMemOpParams> values;
  CUexternalSemaphore semaphore = nullptr;
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal;
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait;
};
CUgraphNodeParams graph_node_parameters(const PlanNode& node, const Device& device, void** parameters,
                                        const AllocatedMemory& memory, KeptParameters& kept);

// For cuGraphInstantiateWithParams.
cuuint64_t instantiation_flags(const Plan& plan);

// For cuGraphAddNode, and as cuGraphGetEdges returns it.
CUgraphEdgeData edge_data(EdgeType type);

}  // namespace nodewright
