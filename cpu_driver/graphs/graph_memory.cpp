// cuGraphAddMemAllocNode and cuGraphAddMemFreeNode in cuda.h state the rules.
#include "cpu_driver/graphs/graph_memory.h"

#include <algorithm>
#include <unordered_set>

#include "cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

bool comes_after(std::span<const GraphEdge> in, const GraphMemory& memory) {
  std::unordered_set<const GraphNode*> seen;
  std::vector<const GraphNode*> open;
  for (const GraphEdge& edge : in) open.push_back(edge.from);
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    const auto* allocate = std::get_if<AllocateWork>(&node->work.what);
    if (allocate != nullptr && allocate->memory.get() == &memory) return true;
    for (const GraphEdge& edge : node->in) open.push_back(edge.from);
  }
  return false;
}

}  // namespace

GraphMemory::~GraphMemory() {
  if (state.memory != nullptr) state.memory->forget(address);
}

CUresult reserve_memory(State& state, const Graph* graph, uint64_t bytes, int device, AllocateWork& work) {
  if (bytes == 0) return refuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  const uint64_t most = state.memory->capacity();
  const auto address = bytes > most ? std::nullopt : state.memory->reserve(bytes, device, graph != nullptr);
  if (!address)
    return refuse(CUDA_ERROR_OUT_OF_MEMORY,
                  "asked for " + std::to_string(bytes) + " bytes, and the device has " + std::to_string(most));
  work.address = *address;
  work.bytes = bytes;
  work.device = device;
  if (graph != nullptr) work.memory = std::make_shared<GraphMemory>(state, *graph, *address);
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> memory_at(const Graph& graph, uint64_t address) {
  for (const auto& node : graph.nodes)
    if (const auto* allocate = std::get_if<AllocateWork>(&node->work.what); allocate != nullptr)
      if (allocate->address == address) return allocate->memory;
  return nullptr;
}

CUresult check_memory(const Graph& graph, const Work& work, std::span<const GraphEdge> in) {
  const auto* free = std::get_if<FreeWork>(&work.what);
  if (free == nullptr && !std::holds_alternative<AllocateWork>(work.what)) return CUDA_SUCCESS;
  if (graph.holder != nullptr)
    return refuse(CUDA_ERROR_NOT_SUPPORTED, "an allocation or a free in a graph that a node holds");
  if (free == nullptr) return CUDA_SUCCESS;
  if (free->memory->freed) return refuse(CUDA_ERROR_INVALID_VALUE, "a free node frees the memory already");
  if (!comes_after(in, *free->memory))
    return refuse(CUDA_ERROR_INVALID_VALUE, "the free node does not come after the node that allocates the memory");
  return CUDA_SUCCESS;
}

void note_freed(Work& work) {
  if (auto* free = std::get_if<FreeWork>(&work.what); free != nullptr) free->memory->freed = true;
}

bool holds_memory_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) return true;
    const auto inner = inner_graphs(node->work);
    return std::any_of(inner.begin(), inner.end(), [](const auto& graph) { return holds_memory_nodes(*graph); });
  });
}

std::vector<std::shared_ptr<GraphMemory>> left_allocated(const Graph& graph) {
  std::vector<std::shared_ptr<GraphMemory>> left;
  for (const auto& node : graph.nodes) {
    const auto* allocate = std::get_if<AllocateWork>(&node->work.what);
    if (allocate != nullptr && !allocate->memory->freed) left.push_back(allocate->memory);
    for (const auto& inner : inner_graphs(node->work)) {
      const auto more = left_allocated(*inner);
      left.insert(left.end(), more.begin(), more.end());
    }
  }
  return left;
}

CUresult check_free_outside(State& state, uint64_t address) {
  const DeviceMemory::Block* block = state.memory == nullptr ? nullptr : state.memory->starting_at(address);
  if (block == nullptr || !block->of_graph || block->outstanding) return CUDA_SUCCESS;
  return refuse(CUDA_ERROR_INVALID_VALUE,
                "the memory belongs to a graph, which frees it itself or has not allocated it: it begins " +
                    state.memory->describe(address));
}

}  // namespace nodewright::cpu
