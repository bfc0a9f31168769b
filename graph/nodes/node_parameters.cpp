#include "graph/nodes/node_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "graph/nodes/host_call.h"

namespace nodewright {

ParameterPointers::ParameterPointers(const LoadedKernel* kernel, std::span<const std::byte> arguments) {
  auto* first = const_cast<std::byte*>(arguments.data());  // the driver's structs know no const
  few_[0] = first;
  if (kernel == nullptr) return;
  const std::span<const KernelParameter> parameters = kernel->parameters;
  if (parameters.size() > few_.size()) many_.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) get()[i] = first + parameters[i].offset;
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, void** parameters) {
  return kernel_parameters(*node.kernel, node.shape, parameters, node.attributes.green);
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(const LoadedKernel& loaded, const LaunchShape& shape, void** parameters,
                                          const GreenPlace& green) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  // Beside a function the driver ignores the context (CUDA_KERNEL_NODE_PARAMS in cuda.h).
  if (green.context == nullptr)
    kernel.func = loaded.function;
  else
    kernel.kern = loaded.kernel;
  kernel.ctx = green.context;
  kernel.gridDimX = shape.grid[0];
  kernel.gridDimY = shape.grid[1];
  kernel.gridDimZ = shape.grid[2];
  kernel.blockDimX = shape.block[0];
  kernel.blockDimY = shape.block[1];
  kernel.blockDimZ = shape.block[2];
  kernel.sharedMemBytes = shape.shared_bytes;
  kernel.kernelParams = parameters;
  return kernel;
}

LaunchAttributes launch_attributes(const KernelAttributes& attributes) {
  LaunchAttributes result;
  const auto next = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& attribute = result.list[result.count++];
    attribute.id = id;
    return attribute.value;
  };
  if (const auto& c = attributes.cluster; c[0] * c[1] * c[2] != 1) {
    auto& dim = next(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
    dim.x = c[0];
    dim.y = c[1];
    dim.z = c[2];
  }
  if (attributes.cooperative) next(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (attributes.priority != 0) next(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority = attributes.priority;
  if (attributes.shared_carveout_percent >= 0)
    next(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout =
        static_cast<unsigned>(attributes.shared_carveout_percent);
  return result;
}

CUlaunchConfig launch_config(const PlanNode& node, CUstream stream, bool programmatic, LaunchAttributes& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = node.shape.grid[0];
  config.gridDimY = node.shape.grid[1];
  config.gridDimZ = node.shape.grid[2];
  config.blockDimX = node.shape.block[0];
  config.blockDimY = node.shape.block[1];
  config.blockDimZ = node.shape.block[2];
  config.sharedMemBytes = node.shape.shared_bytes;
  config.hStream = stream;
  attributes = launch_attributes(node.attributes);
  if (programmatic) {
    CUlaunchAttribute& attribute = attributes.list[attributes.count++];
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  if (attributes.count != 0) {
    config.attrs = attributes.list.data();
    config.numAttrs = attributes.count;
  }
  return config;
}

bool sets_conditions(const PlanNode& node) {
  return std::any_of(node.fields.begin(), node.fields.end(),
                     [](const FieldInfo& field) { return field.role == Role::condition; });
}

const PlanNode* first_with_handle(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    for (const FieldInfo& field : node.fields)
      if (field.role == Role::condition && field.bytes < sizeof(Condition)) return &node;
    for (const auto& body : node.bodies)
      if (const PlanNode* inner = first_with_handle(*body)) return inner;
  }
  return nullptr;
}

namespace {

// What a copy of rows and one of planes have in common.
template <class Parameters>
Parameters rows_of_copy(const CopyParameters& copy) {
  Parameters result{};
  result.srcMemoryType = copy.from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  result.dstMemoryType = copy.to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (copy.from_host)
    result.srcHost = reinterpret_cast<const void*>(copy.from);
  else
    result.srcDevice = copy.from;
  if (copy.to_host)
    result.dstHost = reinterpret_cast<void*>(copy.to);
  else
    result.dstDevice = copy.to;
  result.srcPitch = copy.from_pitch;
  result.dstPitch = copy.to_pitch;
  result.WidthInBytes = copy.bytes;
  result.Height = copy.rows;
  return result;
}

unsigned flags_of(const ValueOperation& operation) {
  if (!operation.waits) return CU_STREAM_WRITE_VALUE_DEFAULT;
  switch (operation.until) {
    case Until::at_least:
      return CU_STREAM_WAIT_VALUE_GEQ;
    case Until::equal:
      return CU_STREAM_WAIT_VALUE_EQ;
    case Until::any_bit:
      return CU_STREAM_WAIT_VALUE_AND;
    case Until::any_zero:
      break;
  }
  return CU_STREAM_WAIT_VALUE_NOR;
}

}  // namespace

std::vector<CUstreamBatchMemOpParams> value_parameters(const std::vector<ValueOperation>& operations) {
  std::vector<CUstreamBatchMemOpParams> result(operations.size());
  for (size_t i = 0; i < operations.size(); ++i) {
    const ValueOperation& operation = operations[i];
    const bool wide = operation.bytes == 8;
    auto& to = result[i].waitValue;  // laid out as writeValue is
    if (operation.waits)
      to.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    else
      to.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    to.address = operation.address;
    if (wide)
      to.value64 = operation.value;
    else
      to.value = static_cast<cuuint32_t>(operation.value);
    to.flags = flags_of(operation);
  }
  return result;
}

CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal_parameters(const SemaphoreParameters& semaphore) {
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS result{};
  result.params.fence.value = semaphore.value;
  return result;
}

CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait_parameters(const SemaphoreParameters& semaphore) {
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS result{};
  result.params.fence.value = semaphore.value;
  return result;
}

CUDA_MEMCPY2D row_copy_parameters(const CopyParameters& copy) { return rows_of_copy<CUDA_MEMCPY2D>(copy); }

CUDA_MEMCPY3D copy_parameters(const CopyParameters& copy) {
  auto result = rows_of_copy<CUDA_MEMCPY3D>(copy);
  result.srcHeight = copy.from_height;
  result.dstHeight = copy.to_height;
  result.Depth = copy.slices;
  if (copy.from_array != nullptr) {
    const ArrayOrigin at = origin_of(copy.from, copy.from_pitch, copy.from_height);
    result.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    result.srcArray = copy.from_array;
    result.srcDevice = result.srcPitch = result.srcHeight = 0;
    result.srcXInBytes = at.x_bytes;
    result.srcY = at.y;
    result.srcZ = at.z;
  }
  if (copy.to_array != nullptr) {
    const ArrayOrigin at = origin_of(copy.to, copy.to_pitch, copy.to_height);
    result.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    result.dstArray = copy.to_array;
    result.dstDevice = result.dstPitch = result.dstHeight = 0;
    result.dstXInBytes = at.x_bytes;
    result.dstY = at.y;
    result.dstZ = at.z;
  }
  return result;
}

CUDA_MEMSET_NODE_PARAMS fill_parameters(const FillParameters& fill) {
  CUDA_MEMSET_NODE_PARAMS result{};
  result.dst = fill.to;
  result.pitch = fill.pitch;
  result.value = fill.value;
  result.elementSize = fill.element_bytes;
  result.width = fill.count;
  result.height = fill.rows;
  return result;
}

CUgraphNodeParams kernel_node(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  CUgraphNodeParams result{};
  result.type = CU_GRAPH_NODE_TYPE_KERNEL;
  result.kernel = std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v3>(kernel);  // of the same members
  return result;
}

CUgraphNodeParams graph_node_parameters(const PlanNode& node, const Device& device, void** parameters,
                                        const AllocatedMemory& memory, KeptParameters& kept) {
  const CUcontext context = device.context();
  CUgraphNodeParams result{};
  switch (node.kind) {
    case NodeKind::kernel:
      result = kernel_node(kernel_parameters(node, parameters));
      break;
    case NodeKind::memcpy:
      result.type = CU_GRAPH_NODE_TYPE_MEMCPY;
      result.memcpy.copyCtx = context;
      result.memcpy.copyParams = copy_parameters(memory.placed(node.copy));
      break;
    case NodeKind::memset: {
      const CUDA_MEMSET_NODE_PARAMS fill = fill_parameters(memory.placed(node.fill));
      result.type = CU_GRAPH_NODE_TYPE_MEMSET;
      result.memset = {fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height, context};
      break;
    }
    case NodeKind::host:
      result.type = CU_GRAPH_NODE_TYPE_HOST;
      result.host.fn = call_host;
      result.host.userData = node.host.get();
      break;
    case NodeKind::event_record:
      result.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
      result.eventRecord.event = node.event;
      break;
    case NodeKind::event_wait:
      result.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
      result.eventWait.event = node.event;
      break;
    case NodeKind::empty:
      result.type = CU_GRAPH_NODE_TYPE_EMPTY;
      break;
    case NodeKind::allocate:
      result.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      result.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      result.alloc.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.get()};
      result.alloc.bytesize = node.uses[0].bytes;
      break;
    case NodeKind::free:
      result.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
      result.free.dptr = memory.address_of(node.allocated);
      break;
    case NodeKind::values:
      kept.values = value_parameters(node.values);
      result.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
      result.memOp.ctx = context;
      result.memOp.count = static_cast<unsigned>(kept.values.size());
      result.memOp.paramArray = kept.values.data();
      break;
    case NodeKind::semaphore_signal:
      kept.semaphore = node.semaphore.semaphore;
      kept.signal = signal_parameters(node.semaphore);
      result.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
      result.extSemSignal = {&kept.semaphore, &kept.signal, 1};
      break;
    case NodeKind::semaphore_wait:
      kept.semaphore = node.semaphore.semaphore;
      kept.wait = wait_parameters(node.semaphore);
      result.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
      result.extSemWait = {&kept.semaphore, &kept.wait, 1};
      break;
    case NodeKind::child:
    case NodeKind::conditional:
    case NodeKind::library:
    case NodeKind::other:
      throw Error({.doing = "describe node",
                   .object = node.name,
                   .detail = fmt::format("a node of kind {} is made of more than parameters", to_string(node.kind))});
  }
  return result;
}

// Without the flag all kernels of a graph run with the priority of the stream it is launched into.
cuuint64_t instantiation_flags(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (node.attributes.priority != 0) return CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    for (const auto& body : node.bodies)
      if (const cuuint64_t flags = instantiation_flags(*body); flags != 0) return flags;
  }
  return 0;
}

CUgraphEdgeData edge_data(EdgeType type) {
  CUgraphEdgeData data{};
  if (type == EdgeType::programmatic) {
    data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;  // all blocks have triggered or exited
  }
  return data;
}

}  // namespace nodewright
