// Whether a plan's edges order its nodes: many questions in one pass over the edges.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// Must `from` complete before `to` touches memory that is neither frozen nor settled; or, if `early`, before `to`
// starts?
struct OrderQuestion {
  uint32_t from = 0, to = 0;  // node ids
  bool early = false;
  auto operator<=>(const OrderQuestion&) const = default;
};

// Those that no path of edges answers with yes, sorted, each once. A programmatic edge counts only where it goes from a
// kernel to a kernel that waits. O(nodes + edges + questions), and a search for each far question that
// Reachability does not answer.
std::vector<OrderQuestion> unordered(const Plan& plan, std::vector<OrderQuestion> questions);

}  // namespace nodewright
