#include "graph/node_parameters.h"

namespace nodewright {

void* argument_address(std::span<const std::byte> arguments) {
  return const_cast<std::byte*>(arguments.data());  // the driver's structs know no const
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(const PlanNode& node, void** argument) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = node.kernel->function;
  kernel.gridDimX = node.shape.grid[0];
  kernel.gridDimY = node.shape.grid[1];
  kernel.gridDimZ = node.shape.grid[2];
  kernel.blockDimX = node.shape.block[0];
  kernel.blockDimY = node.shape.block[1];
  kernel.blockDimZ = node.shape.block[2];
  kernel.sharedMemBytes = node.shape.shared_bytes;
  kernel.kernelParams = argument;
  return kernel;
}

CUlaunchConfig launch_config(const PlanNode& node, CUstream stream, bool programmatic, CUlaunchAttribute* attribute) {
  CUlaunchConfig config{};
  config.gridDimX = node.shape.grid[0];
  config.gridDimY = node.shape.grid[1];
  config.gridDimZ = node.shape.grid[2];
  config.blockDimX = node.shape.block[0];
  config.blockDimY = node.shape.block[1];
  config.blockDimZ = node.shape.block[2];
  config.sharedMemBytes = node.shape.shared_bytes;
  config.hStream = stream;
  if (programmatic) {
    *attribute = {};
    attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute->value.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
  }
  return config;
}

CUDA_MEMCPY3D copy_parameters(const CopyParameters& copy) {
  CUDA_MEMCPY3D result{};
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
  result.WidthInBytes = copy.bytes;
  result.Height = 1;
  result.Depth = 1;
  return result;
}

CUgraphNodeParams graph_node_parameters(const PlanNode& node, CUcontext context, void** argument) {
  CUgraphNodeParams result{};
  switch (node.kind) {
    case NodeKind::kernel: {
      const CUDA_KERNEL_NODE_PARAMS kernel = kernel_parameters(node, argument);
      result.type = CU_GRAPH_NODE_TYPE_KERNEL;
      result.kernel.func = kernel.func;
      result.kernel.gridDimX = kernel.gridDimX;
      result.kernel.gridDimY = kernel.gridDimY;
      result.kernel.gridDimZ = kernel.gridDimZ;
      result.kernel.blockDimX = kernel.blockDimX;
      result.kernel.blockDimY = kernel.blockDimY;
      result.kernel.blockDimZ = kernel.blockDimZ;
      result.kernel.sharedMemBytes = kernel.sharedMemBytes;
      result.kernel.kernelParams = kernel.kernelParams;
      break;
    }
    case NodeKind::memcpy:
      result.type = CU_GRAPH_NODE_TYPE_MEMCPY;
      result.memcpy.copyCtx = context;
      result.memcpy.copyParams = copy_parameters(node.copy);
      break;
    case NodeKind::memset:
      result.type = CU_GRAPH_NODE_TYPE_MEMSET;
      result.memset.dst = node.fill.to;
      result.memset.value = node.fill.value;
      result.memset.elementSize = node.fill.element_bytes;
      result.memset.width = node.fill.count;
      result.memset.height = 1;
      result.memset.ctx = context;
      break;
    case NodeKind::empty:
      result.type = CU_GRAPH_NODE_TYPE_EMPTY;
      break;
  }
  return result;
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
