// How long a plan needs each of its buffers, and how much memory that makes at most. Follows the order of the plan:
// nodes on branches of their own may run at other times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// From the first node that needs the buffer to the last: node ids. A value from before the plan is held from its first
// node on, one that is read afterwards up to its last.
struct Lifetime {
  uint32_t first = 0, last = 0;
};

// By index in Plan::buffers; nothing where no node uses the buffer and nobody outside does.
std::vector<std::optional<Lifetime>> buffer_lifetimes(const Plan& plan);

// The most bytes that are needed at once, and the first node at which they are. Conditions are no memory.
struct MemoryPeak {
  uint64_t bytes = 0;
  uint32_t node = 0;
};
MemoryPeak memory_peak(const Plan& plan);

}  // namespace nodewright
