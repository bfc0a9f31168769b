#include "graph/library_nodes.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

namespace {

// The driver returns arguments as they were passed: as one buffer, or as a pointer to each. What it returns belongs to
// the node, so the bytes are copied.
KernelArguments arguments_of(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& kernel, const std::string& name) {
  KernelArguments result;
  if (kernel.extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** entry = kernel.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
      if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = entry[1];
      if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(entry[1]);
    }
    if (buffer == nullptr || bytes == 0) result.obstacle = "its kernel's argument buffer cannot be read";
    const auto* first = static_cast<const std::byte*>(buffer);
    if (result.obstacle.empty()) result.bytes.assign(first, first + bytes);
    return result;
  }
  CUresult more = CUDA_SUCCESS;
  while (more == CUDA_SUCCESS) {
    KernelArguments::Parameter parameter;
    more = driver.cuFuncGetParamInfo(kernel.func, result.layout.size(), &parameter.offset, &parameter.bytes);
    if (more == CUDA_SUCCESS) result.layout.push_back(parameter);
  }
  if (more != CUDA_ERROR_INVALID_VALUE)  // which says that there is no parameter of this number
    driver.check(more, "cuFuncGetParamInfo", "read recorded product", name);
  if (kernel.kernelParams == nullptr || result.layout.empty()) {
    result.obstacle = "its kernel's arguments cannot be read";
    return result;
  }
  result.bytes.resize(result.layout.back().offset + result.layout.back().bytes);
  for (size_t i = 0; i < result.layout.size(); ++i)
    std::memcpy(result.bytes.data() + result.layout[i].offset, kernel.kernelParams[i], result.layout[i].bytes);
  return result;
}

KernelLaunch launch_of(const CUDA_KERNEL_NODE_PARAMS& kernel, std::vector<std::byte> arguments) {
  return {.function = kernel.func,
          .shape = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ, kernel.blockDimX, kernel.blockDimY,
                    kernel.blockDimZ, kernel.sharedMemBytes},
          .arguments = std::move(arguments)};
}

// What may be chosen by the alignment of an address is chosen alike for addresses that differ by multiples of this.
constexpr uint64_t kSameAlignment = 256;

uint64_t word_at(const std::vector<std::byte>& bytes, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

}  // namespace

KernelLaunch kernel_launch(const Driver& driver, CUgraphNode kernel, const std::string& name) {
  CUDA_KERNEL_NODE_PARAMS held{};
  driver.check(driver.cuGraphKernelNodeGetParams(kernel, &held), "cuGraphKernelNodeGetParams", "read node", name);
  return launch_of(held, arguments_of(driver, held, name).bytes);
}

KernelLaunch RecordedProduct::launch() const { return launch_of(parameters_, arguments_.bytes); }

RecordedProduct::RecordedProduct(const MatmulPlan& plan, const MatmulOperands& operands, std::string name,
                                 const Stream& stream)
    : driver_(plan.device().driver()), name_(std::move(name)), operands_(operands), graph_(driver_) {
  capture(plan, stream);
  read_kernel();
}

// Relaxed: at its first use the library loads its kernels, which the stricter modes forbid on a capturing thread.
void RecordedProduct::capture(const MatmulPlan& plan, const Stream& stream) {
  driver_.check(driver_.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture",
                "record product", name_);
  const auto end = [&] {
    CUgraph graph = nullptr;
    const CUresult result = driver_.cuStreamEndCapture(stream.get(), &graph);
    graph_ = GraphHandle(driver_, graph);
    return result;
  };
  try {
    plan.submit(operands_, stream.get());
  } catch (...) {
    end();  // a stream left capturing could not be destroyed
    throw;
  }
  driver_.check(end(), "cuStreamEndCapture", "record product", name_);
}

void RecordedProduct::read_kernel() {
  const auto check = [&](CUresult result, const char* call) {
    driver_.check(result, call, "read recorded product", name_);
  };
  size_t count = 0;
  check(driver_.cuGraphGetNodes(graph_.get(), nullptr, &count), "cuGraphGetNodes");
  if (count != 1) {
    obstacle_ = fmt::format("its algorithm is {} nodes", count);
    return;
  }
  check(driver_.cuGraphGetNodes(graph_.get(), &kernel_, &count), "cuGraphGetNodes");
  CUgraphNodeType type{};
  check(driver_.cuGraphNodeGetType(kernel_, &type), "cuGraphNodeGetType");
  if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
    obstacle_ = fmt::format("its one node is of type {}, not a kernel", static_cast<int>(type));
    return;
  }
  check(driver_.cuGraphKernelNodeGetParams(kernel_, &parameters_), "cuGraphKernelNodeGetParams");
  arguments_ = arguments_of(driver_, parameters_, name_);
  obstacle_ = arguments_.obstacle;
}

bool RecordedProduct::launches_as(const RecordedProduct& other) const {
  const CUDA_KERNEL_NODE_PARAMS &mine = parameters_, &its = other.parameters_;
  return obstacle_.empty() && other.obstacle_.empty() && mine.func == its.func && mine.gridDimX == its.gridDimX &&
         mine.gridDimY == its.gridDimY && mine.gridDimZ == its.gridDimZ && mine.blockDimX == its.blockDimX &&
         mine.blockDimY == its.blockDimY && mine.blockDimZ == its.blockDimZ &&
         mine.sharedMemBytes == its.sharedMemBytes && arguments_.bytes.size() == other.arguments_.bytes.size();
}

void RecordedProduct::compare(const RecordedProduct& other) {
  places_.clear();
  may_move_ = {};
  if (!launches_as(other)) return;
  std::vector<std::byte> moved = arguments_.bytes;
  std::vector<Place> places;
  for (size_t offset = 0; offset + sizeof(uint64_t) <= moved.size(); offset += sizeof(uint32_t)) {
    const uint64_t mine = word_at(arguments_.bytes, offset), its = word_at(other.arguments_.bytes, offset);
    for (size_t i = 0; i < kOperands.size(); ++i) {
      if (mine == 0 || mine != operands_.*kOperands[i] || its != other.operands_.*kOperands[i]) continue;
      places.push_back({offset, i});
      std::memcpy(moved.data() + offset, &its, sizeof its);
      offset += sizeof(uint32_t);  // the second half of this address
      break;
    }
  }
  if (moved != other.arguments_.bytes) return;
  places_ = std::move(places);
  for (size_t i = 0; i < kOperands.size(); ++i) may_move_[i] = operands_.*kOperands[i] != other.operands_.*kOperands[i];
}

bool RecordedProduct::move_to(const MatmulOperands& operands) {
  for (size_t i = 0; i < kOperands.size(); ++i) {
    const uint64_t from = operands_.*kOperands[i], to = operands.*kOperands[i];
    if (from != to && (!may_move_[i] || from == 0 || to == 0 || (to - from) % kSameAlignment != 0)) return false;
    for (size_t j = 0; j < i; ++j)  // one address may stand for two operands: then only for both
      if (from != 0 && from == operands_.*kOperands[j] && to != operands.*kOperands[j]) return false;
  }
  for (const Place& place : places_)
    std::memcpy(arguments_.bytes.data() + place.offset, &(operands.*kOperands[place.operand]), sizeof(uint64_t));
  operands_ = operands;
  return true;
}

CUgraphNode RecordedProduct::add_kernel(const NodePlace& place, const std::string& name) const {
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
  auto* bytes = const_cast<std::byte*>(arguments_.bytes.data());  // the driver's structs know no const
  size_t size = arguments_.bytes.size();
  std::array<void*, 5> buffer{CU_LAUNCH_PARAM_BUFFER_POINTER, bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                              CU_LAUNCH_PARAM_END};
  std::vector<void*> pointers;
  for (const KernelArguments::Parameter& parameter : arguments_.layout) pointers.push_back(bytes + parameter.offset);
  if (arguments_.layout.empty())
    node.kernel.extra = buffer.data();
  else
    node.kernel.kernelParams = pointers.data();

  CUgraphNode added = nullptr;
  driver_.label(name);
  const CUresult result =
      driver_.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(), place.before.size(), &node);
  if (result != CUDA_SUCCESS)
    driver_.check(result, "cuGraphAddNode", "add product", name, fmt::format("a kernel with {} argument bytes", size));
  // Without its cluster dimension the kernel would not launch (CUDA_ERROR_INVALID_CLUSTER_SIZE).
  driver_.check(driver_.cuGraphKernelNodeCopyAttributes(added, kernel_), "cuGraphKernelNodeCopyAttributes",
                "add product", name);
  return added;
}

CUgraphNode RecordedProduct::add_child(const NodePlace& place) const {
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_GRAPH;
  node.graph.graph = graph_.get();
  node.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  CUgraphNode added = nullptr;
  driver_.label(name_);
  driver_.check(
      driver_.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(), place.before.size(), &node),
      "cuGraphAddNode", "add product", name_, "a child graph");
  return added;
}

}  // namespace nodewright
