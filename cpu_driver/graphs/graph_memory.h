// Memory that comes and goes in the order of a stream or a graph: addresses are there at once, memory behind them from
// the time the allocation runs until the free runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu_driver/graphs/graph_objects.h"

namespace nodewright::cpu {

// The addresses of one allocation node. They last as long as the graph and the executable graphs made from it.
struct GraphMemory {
  GraphMemory(State& state, const Graph& owner, uint64_t address) : state(state), owner(&owner), address(address) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  State& state;
  const Graph* owner;
  uint64_t address;
  bool freed = false;  // by a node of its graph
};

// Addresses for an allocation node of `graph`, or, null, for an allocation in the order of a stream.
CUresult reserve_memory(State& state, const Graph* graph, uint64_t bytes, int device, AllocateWork& work);

// Whether a node after `in` may be added to the graph as far as memory goes: none to a graph that a node holds, and a
// free after its allocation, once.
CUresult check_memory(const Graph& graph, const Work& work, std::span<const GraphEdge> in);
// The free node was added.
void note_freed(Work& work);
// The allocation node of the graph that has this address; null if there is none.
std::shared_ptr<GraphMemory> memory_at(const Graph& graph, uint64_t address);

// Whether an allocation or a free stands in the graph or in one inside it.
bool holds_memory_nodes(const Graph& graph);

// What a launch of a graph leaves allocated.
std::vector<std::shared_ptr<GraphMemory>> left_allocated(const Graph& graph);

// For cuMemFree and cuMemFreeAsync: CUDA_SUCCESS unless the graph that owns the memory frees it, or has not allocated
// it.
CUresult check_free_outside(State& state, uint64_t address);

}  // namespace nodewright::cpu
