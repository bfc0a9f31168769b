// The value behind a handle of cuGraphConditionalHandleCreate: kernels set it, a conditional node obeys it.
#pragma once

#include <atomic>
#include <cstdint>

#include "cpu_driver/cuda_names.h"

namespace nodewright::cpu {

struct Graph;

// Shared by the graph it was made for and by executable graphs, which may outlive that graph.
struct Conditional {
  CUgraphConditionalHandle handle = 0;
  const Graph* graph = nullptr;  // null: destroyed
  bool used = false;             // by a conditional node
  bool assign_default = false;   // at each launch
  uint32_t default_value = 0;
  std::atomic<uint32_t> value{0};  // kernels write it without the driver's lock
  std::atomic<bool> is_set{true};  // false: undefined, since the launch began without a default

  void set(uint32_t to) {
    value.store(to, std::memory_order_relaxed);
    is_set.store(true, std::memory_order_relaxed);
  }
};

}  // namespace nodewright::cpu
