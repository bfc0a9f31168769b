#include "graph/nodes/held_nodes.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/kernel_parameters.h"
#include "runtime/memory/known_memory.h"

namespace nodewright {
namespace {

void check_read(const Driver& driver, CUresult result, const char* call, std::string_view name) {
  if (result != CUDA_SUCCESS) driver.check(result, call, "read graph", name);
}

// What the entry point `read`, called `call`, says of the node.
template <class Held>
Held held_as(const Driver& driver, const auto& read, const char* call, CUgraphNode node, std::string_view name) {
  Held held{};
  check_read(driver, read(node, &held), call, name);
  return held;
}

template <class Held>
std::vector<SemaphoreParameters> semaphores_of(const Held& held) {
  std::vector<SemaphoreParameters> semaphores;
  for (unsigned i = 0; i < held.numExtSems; ++i)
    semaphores.push_back({held.extSemArray[i], held.paramsArray[i].params.fence.value});
  return semaphores;
}

// One end of a copy, without the rest of it.
struct HeldEnd {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, lod, pitch, height;
  CUarray array = nullptr;

  // The address of its first byte. `width` and `rows` count where the copy names no pitch and no height.
  uint64_t address(size_t width, size_t rows) const {
    const uint64_t first = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : uint64_t{device};
    return first + z * slice(width, rows) + y * row(width) + x;
  }
  uint64_t row(size_t width) const { return pitch != 0 ? pitch : width; }
  uint64_t slice(size_t width, size_t rows) const { return row(width) * (height != 0 ? height : rows); }
  bool is_linear() const { return type != CU_MEMORYTYPE_ARRAY && lod == 0; }

  // The end as a plan has it, in the array's own pitch and height; it stays as it is where no plan says it.
  void place(const Device& on, CUarray of) {
    ArrayShape shape;
    try {
      shape = array_shape(on.driver(), of, "read copy", "array");
    } catch (const Error&) {
      return;
    }
    array = of;
    type = CU_MEMORYTYPE_DEVICE;
    device = on.arrays().address_of(of, on.properties().ordinal, shape.bytes());
    pitch = shape.row_bytes;
    height = shape.rows;
  }
};

// Ends in arrays as plans place them.
HeldEnd from_of(const Device& device, const CUDA_MEMCPY3D& held) {
  HeldEnd end{held.srcMemoryType, held.srcHost, held.srcDevice, held.srcXInBytes, held.srcY,
              held.srcZ,          held.srcLOD,  held.srcPitch,  held.srcHeight};
  if (end.type == CU_MEMORYTYPE_ARRAY) end.place(device, held.srcArray);
  return end;
}
HeldEnd to_of(const Device& device, const CUDA_MEMCPY3D& held) {
  HeldEnd end{held.dstMemoryType, held.dstHost, held.dstDevice, held.dstXInBytes, held.dstY,
              held.dstZ,          held.dstLOD,  held.dstPitch,  held.dstHeight};
  if (end.type == CU_MEMORYTYPE_ARRAY) end.place(device, held.dstArray);
  return end;
}

// Host memory may come back as unified: the driver knows whose it is.
bool is_host(const Device& device, CUmemorytype type, uint64_t address) {
  if (type != CU_MEMORYTYPE_UNIFIED) return type == CU_MEMORYTYPE_HOST;
  const auto known = known_memory_at(device, address);
  return !known || known->host;
}

}  // namespace

std::vector<CUgraphNode> held_nodes(const Driver& driver, CUgraph graph, std::string_view name) {
  size_t count = 0;
  check_read(driver, driver.cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes", name);
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) check_read(driver, driver.cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes", name);
  return nodes;
}

std::vector<HeldEdge> held_edges(const Driver& driver, CUgraph graph, std::string_view name) {
  size_t count = 0;
  check_read(driver, driver.cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges", name);
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0)
    check_read(driver, driver.cuGraphGetEdges(graph, from.data(), to.data(), data.data(), &count), "cuGraphGetEdges",
               name);
  std::vector<HeldEdge> edges(count);
  for (size_t i = 0; i < count; ++i) edges[i] = {from[i], to[i], data[i]};
  return edges;
}

Edge edge_of(const CUgraphEdgeData& data) {
  Edge edge;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT && data.from_port == 0 && data.to_port == 0) return edge;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
      data.to_port == 0) {
    edge.type = EdgeType::programmatic;
    return edge;
  }
  edge.type = EdgeType::other;
  edge.driver_type = data.type;
  edge.from_port = data.from_port;
  edge.to_port = data.to_port;
  return edge;
}

CUgraphNodeType held_type(const Driver& driver, CUgraphNode node, std::string_view name) {
  CUgraphNodeType type{};
  check_read(driver, driver.cuGraphNodeGetType(node, &type), "cuGraphNodeGetType", name);
  return type;
}

CUDA_KERNEL_NODE_PARAMS held_kernel(const Driver& driver, CUgraphNode node, std::string_view name) {
  return held_as<CUDA_KERNEL_NODE_PARAMS>(driver, driver.cuGraphKernelNodeGetParams, "cuGraphKernelNodeGetParams", node,
                                          name);
}

std::vector<KernelParameter> held_parameters(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& kernel,
                                             std::string_view name) {
  return kernel.func != nullptr ? parameters_of(driver, kernel.func, name) : parameters_of(driver, kernel.kern, name);
}

// The driver returns arguments as they were passed: as one buffer, or as a pointer to each.
std::vector<std::byte> held_arguments(const CUDA_KERNEL_NODE_PARAMS& kernel,
                                      std::span<const KernelParameter> parameters) {
  std::vector<std::byte> bytes(parameters.empty() ? 0 : parameters.back().end());
  if (kernel.extra != nullptr) {
    const std::byte* buffer = nullptr;
    size_t size = 0;
    for (void** entry = kernel.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
      if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<const std::byte*>(entry[1]);
      if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const size_t*>(entry[1]);
    }
    if (buffer != nullptr) std::copy_n(buffer, std::min(size, bytes.size()), bytes.begin());
    return bytes;
  }
  for (size_t i = 0; kernel.kernelParams != nullptr && i < parameters.size(); ++i)
    if (kernel.kernelParams[i] != nullptr)
      std::memcpy(bytes.data() + parameters[i].offset, kernel.kernelParams[i], parameters[i].bytes);
  return bytes;
}

KernelAttributes held_attributes(const Driver& driver, CUgraphNode node, std::string_view name) {
  const auto held = [&](CUkernelNodeAttrID id) {
    CUkernelNodeAttrValue value{};
    check_read(driver, driver.cuGraphKernelNodeGetAttribute(node, id, &value), "cuGraphKernelNodeGetAttribute", name);
    return value;
  };
  KernelAttributes attributes;
  const auto cluster = held(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim;
  // The driver says 0 where no cluster was asked for.
  attributes.cluster = {std::max(cluster.x, 1u), std::max(cluster.y, 1u), std::max(cluster.z, 1u)};
  attributes.cooperative = held(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative != 0;
  attributes.priority = held(CU_LAUNCH_ATTRIBUTE_PRIORITY).priority;
  // Where the driver does not tell one of these, nobody has set it.
  const auto told = [&](CUkernelNodeAttrID id) -> std::optional<CUkernelNodeAttrValue> {
    CUkernelNodeAttrValue value{};
    if (driver.cuGraphKernelNodeGetAttribute(node, id, &value) != CUDA_SUCCESS) return std::nullopt;
    return value;
  };
  if (const auto value = told(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT))
    attributes.shared_carveout_percent = static_cast<int>(value->sharedMemCarveout);
  if (const auto value = told(CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE))
    attributes.device_updatable = value->deviceUpdatableKernelNode.deviceUpdatable != 0;
  return attributes;
}

GreenPlace held_green(const Device& device, const CUDA_KERNEL_NODE_PARAMS& kernel) {
  if (kernel.ctx == nullptr || kernel.ctx == device.context()) return {};
  CUdevResource held{};
  const bool known = device.driver().cuCtxGetDevResource(kernel.ctx, &held, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS;
  if (!known || held.sm.smCount >= static_cast<unsigned>(device.properties().sm_count)) return {};
  return {kernel.ctx, held.sm.smCount, &device};
}

CUDA_MEMCPY3D held_copy(const Driver& driver, CUgraphNode node, std::string_view name) {
  return held_as<CUDA_MEMCPY3D>(driver, driver.cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams", node, name);
}

std::optional<CopyParameters> copy_of(const Device& device, const CUDA_MEMCPY3D& held) {
  const HeldEnd from = from_of(device, held), to = to_of(device, held);
  if (!from.is_linear() || !to.is_linear()) return std::nullopt;
  const size_t width = held.WidthInBytes, rows = std::max<size_t>(held.Height, 1),
               planes = std::max<size_t>(held.Depth, 1);
  CopyParameters copy;
  copy.from = from.address(width, rows);
  copy.to = to.address(width, rows);
  copy.bytes = width;
  copy.from_host = is_host(device, from.type, copy.from);
  copy.to_host = is_host(device, to.type, copy.to);
  if (from.array != nullptr || to.array != nullptr) {
    const auto pitch = [&](const HeldEnd& end) {
      return end.array != nullptr || rows * planes > 1 ? end.row(width) : 0;
    };
    const auto height = [&](const HeldEnd& end) {
      return end.array != nullptr || planes > 1 ? end.slice(width, rows) / end.row(width) : 0;
    };
    copy.rows = rows;
    copy.slices = planes;
    copy.from_pitch = pitch(from);
    copy.to_pitch = pitch(to);
    copy.from_height = height(from);
    copy.to_height = height(to);
    copy.from_array = from.array;
    copy.to_array = to.array;
    return copy;
  }
  copy.rows = rows * planes;
  if (copy.rows == 1) return copy;
  copy.from_pitch = rows == 1 ? from.slice(width, rows) : from.row(width);
  copy.to_pitch = rows == 1 ? to.slice(width, rows) : to.row(width);
  const auto is_even = [&](const HeldEnd& end) { return end.slice(width, rows) == rows * end.row(width); };
  if (rows == 1 || planes == 1 || (is_even(from) && is_even(to))) return copy;
  const auto is_whole = [&](const HeldEnd& end) { return end.slice(width, rows) % end.row(width) == 0; };
  if (!is_whole(from) || !is_whole(to)) return std::nullopt;
  copy.rows = rows;
  copy.slices = planes;
  copy.from_height = from.slice(width, rows) / from.row(width);
  copy.to_height = to.slice(width, rows) / to.row(width);
  return copy;
}

std::vector<Use> linear_uses(const Device& device, const CUDA_MEMCPY3D& held) {
  const size_t width = held.WidthInBytes, rows = std::max<size_t>(held.Height, 1),
               planes = std::max<size_t>(held.Depth, 1);
  std::vector<Use> uses;
  const auto add_end = [&](std::string_view field, const HeldEnd& end, Access access) {
    if (!end.is_linear()) return;
    for (size_t plane = 0; plane < planes; ++plane)
      for (size_t row = 0; row < rows; ++row)
        uses.push_back({.field = field,
                        .offset = end.address(width, rows) + plane * end.slice(width, rows) + row * end.row(width),
                        .bytes = width,
                        .access = access});
  };
  add_end("to", to_of(device, held), Access::out);
  add_end("from", from_of(device, held), Access::in);
  return uses;
}

FillParameters held_fill(const Driver& driver, CUgraphNode node, std::string_view name) {
  const auto held = held_as<CUDA_MEMSET_NODE_PARAMS>(driver, driver.cuGraphMemsetNodeGetParams,
                                                     "cuGraphMemsetNodeGetParams", node, name);
  FillParameters fill{.to = held.dst,
                      .value = held.value,
                      .element_bytes = held.elementSize,
                      .count = held.width,
                      .rows = std::max<size_t>(held.height, 1)};
  if (fill.rows > 1) fill.pitch = held.pitch;
  return fill;
}

CUDA_BATCH_MEM_OP_NODE_PARAMS held_values(const Driver& driver, CUgraphNode node, std::string_view name) {
  return held_as<CUDA_BATCH_MEM_OP_NODE_PARAMS>(driver, driver.cuGraphBatchMemOpNodeGetParams,
                                                "cuGraphBatchMemOpNodeGetParams", node, name);
}

std::optional<ValueOperation> operation_of(const CUstreamBatchMemOpParams& held) {
  const auto& from = held.waitValue;  // laid out as writeValue is
  const bool writes =
      held.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || held.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const bool wide =
      held.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 || held.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  if (!writes && !wide && held.operation != CU_STREAM_MEM_OP_WAIT_VALUE_32) return std::nullopt;
  ValueOperation operation{.waits = !writes,
                           .bytes = wide ? 8u : 4u,
                           .address = from.address,
                           .value = wide ? uint64_t{from.value64} : uint64_t{from.value}};
  if (writes) return from.flags == CU_STREAM_WRITE_VALUE_DEFAULT ? std::optional(operation) : std::nullopt;
  switch (from.flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      operation.until = Until::at_least;
      return operation;
    case CU_STREAM_WAIT_VALUE_EQ:
      operation.until = Until::equal;
      return operation;
    case CU_STREAM_WAIT_VALUE_AND:
      operation.until = Until::any_bit;
      return operation;
    case CU_STREAM_WAIT_VALUE_NOR:
      operation.until = Until::any_zero;
      return operation;
    default:
      return std::nullopt;
  }
}

std::vector<SemaphoreParameters> held_semaphores(const Driver& driver, CUgraphNode node, CUgraphNodeType type,
                                                 std::string_view name) {
  if (type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL)
    return semaphores_of(
        held_as<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS>(driver, driver.cuGraphExternalSemaphoresSignalNodeGetParams,
                                                 "cuGraphExternalSemaphoresSignalNodeGetParams", node, name));
  return semaphores_of(held_as<CUDA_EXT_SEM_WAIT_NODE_PARAMS>(driver, driver.cuGraphExternalSemaphoresWaitNodeGetParams,
                                                              "cuGraphExternalSemaphoresWaitNodeGetParams", node,
                                                              name));
}

}  // namespace nodewright
