#include "graph/library_nodes.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "runtime/error.h"
#include "runtime/stream.h"

namespace nodewright {

RecordedProduct::RecordedProduct(const MatmulPlan& plan, const MatmulOperands& operands)
    : driver_(plan.device().driver()), name_(plan.name()), graph_(driver_) {
  capture(plan, operands);
  size_t count = 0;
  driver_.check(driver_.cuGraphGetNodes(graph_.get(), nullptr, &count), "cuGraphGetNodes", "read recorded product",
                name_);
  read_kernel(count);
}

// Relaxed: at its first use the library loads its kernels, which the stricter modes forbid on a capturing thread.
void RecordedProduct::capture(const MatmulPlan& plan, const MatmulOperands& operands) {
  const Stream stream(plan.device(), "record " + name_);
  driver_.check(driver_.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture",
                "record product", name_);
  const auto end = [&] {
    CUgraph graph = nullptr;
    const CUresult result = driver_.cuStreamEndCapture(stream.get(), &graph);
    graph_ = GraphHandle(driver_, graph);
    return result;
  };
  try {
    plan.submit(operands, stream.get());
  } catch (...) {
    end();  // a stream left capturing could not be destroyed
    throw;
  }
  driver_.check(end(), "cuStreamEndCapture", "record product", name_);
}

void RecordedProduct::read_kernel(size_t nodes) {
  if (nodes != 1) {
    obstacle_ = fmt::format("its algorithm is {} nodes", nodes);
    return;
  }
  size_t count = 1;
  driver_.check(driver_.cuGraphGetNodes(graph_.get(), &kernel_, &count), "cuGraphGetNodes", "read recorded product",
                name_);
  CUgraphNodeType type{};
  driver_.check(driver_.cuGraphNodeGetType(kernel_, &type), "cuGraphNodeGetType", "read recorded product", name_);
  if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
    obstacle_ = fmt::format("its one node is of type {}, not a kernel", static_cast<int>(type));
    return;
  }
  driver_.check(driver_.cuGraphKernelNodeGetParams(kernel_, &parameters_), "cuGraphKernelNodeGetParams",
                "read recorded product", name_);
  read_arguments();
  parameters_.kernelParams = nullptr;
  parameters_.extra = nullptr;
}

// The driver returns arguments as they were passed: as one buffer, or as a pointer to each. What it returns belongs to
// the recorded node, so the bytes are copied.
void RecordedProduct::read_arguments() {
  if (parameters_.extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** entry = parameters_.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
      if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = entry[1];
      if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(entry[1]);
    }
    if (buffer == nullptr || bytes == 0) {
      obstacle_ = "its kernel's argument buffer cannot be read";
      return;
    }
    const auto* first = static_cast<const std::byte*>(buffer);
    arguments_.assign(first, first + bytes);
    return;
  }
  for (Parameter p; driver_.cuFuncGetParamInfo(parameters_.func, layout_.size(), &p.offset, &p.bytes) == CUDA_SUCCESS;) {
    layout_.push_back(p);
    arguments_.resize(std::max(arguments_.size(), p.offset + p.bytes));
  }
  if (parameters_.kernelParams == nullptr || layout_.empty()) {
    obstacle_ = "its kernel's arguments cannot be read";
    return;
  }
  for (size_t i = 0; i < layout_.size(); ++i)
    std::memcpy(arguments_.data() + layout_[i].offset, parameters_.kernelParams[i], layout_[i].bytes);
}

CUgraphNode RecordedProduct::add_kernel(const NodePlace& place) const {
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  node.kernel.func = parameters_.func;
  node.kernel.gridDimX = parameters_.gridDimX;
  node.kernel.gridDimY = parameters_.gridDimY;
  node.kernel.gridDimZ = parameters_.gridDimZ;
  node.kernel.blockDimX = parameters_.blockDimX;
  node.kernel.blockDimY = parameters_.blockDimY;
  node.kernel.blockDimZ = parameters_.blockDimZ;
  node.kernel.sharedMemBytes = parameters_.sharedMemBytes;
  auto* bytes = const_cast<std::byte*>(arguments_.data());  // the driver's structs know no const
  size_t size = arguments_.size();
  std::array<void*, 5> buffer{CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                              CU_LAUNCH_PARAM_END};
  std::vector<void*> pointers;
  for (const Parameter& parameter : layout_) pointers.push_back(bytes + parameter.offset);
  if (layout_.empty())
    node.kernel.extra = buffer.data();
  else
    node.kernel.kernelParams = pointers.data();

  CUgraphNode added = nullptr;
  driver_.label(name_);
  driver_.check(driver_.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(),
                                       place.before.size(), &node),
                "cuGraphAddNode", "add product", name_, fmt::format("a kernel with {} argument bytes", size));
  // Without its cluster dimension the kernel would not launch (CUDA_ERROR_INVALID_CLUSTER_SIZE).
  driver_.check(driver_.cuGraphKernelNodeCopyAttributes(added, kernel_), "cuGraphKernelNodeCopyAttributes",
                "add product", name_);
  return added;
}

CUgraphNode RecordedProduct::add_child(const NodePlace& place) const {
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_GRAPH;
  node.graph.graph = graph_.get();
  node.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  CUgraphNode added = nullptr;
  driver_.label(name_);
  driver_.check(driver_.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(),
                                       place.before.size(), &node),
                "cuGraphAddNode", "add product", name_, "a child graph");
  return added;
}

}  // namespace nodewright
