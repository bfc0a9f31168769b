// What the driver holds for one node that allocates or frees memory, meets the outside by values or by a semaphore,
// compared with its plan: one line for each difference. For read_back.
#pragma once

#include <string>
#include <vector>

#include "graph/edges/allocated_memory.h"
#include "graph/node.h"

namespace nodewright {

// Empty when they are equal. `held`: of the node's type; `memory`: where the plan's own memory is.
std::vector<std::string> memory_differences(const PlanNode& node, const Driver& driver, CUgraphNode held,
                                            const AllocatedMemory& memory);
std::vector<std::string> value_differences(const PlanNode& node, const Driver& driver, CUgraphNode held);
std::vector<std::string> semaphore_differences(const PlanNode& node, const Driver& driver, CUgraphNode held);

}  // namespace nodewright
