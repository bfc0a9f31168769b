// From what each node must follow to the edges of a plan: none that a path implies, each of the cheapest type that is
// safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "graph/node.h"

namespace nodewright {

class StartOrders;

// What nodes must follow, in flat lists: most orders are implied by others and become no edge.
struct Orders {
  // `node` must follow `from`, a smaller id, for the reasons from `first_reason` up to the next order's.
  struct Order {
    uint32_t node = 0, from = 0;
    uint32_t first_reason = 0;
  };
  std::vector<Order> list;  // by node, then by from, each pair once
  std::vector<Reason> reasons;

  std::span<const Reason> reasons_of(size_t order) const {
    const size_t end = order + 1 < list.size() ? list[order + 1].first_reason : reasons.size();
    return std::span(reasons).subspan(list[order].first_reason, end - list[order].first_reason);
  }
  std::pmr::vector<Reason> reasons_of(size_t order, std::pmr::memory_resource* memory) const {
    const std::span<const Reason> of_order = reasons_of(order);
    return {of_order.begin(), of_order.end(), memory};
  }
};

// Enters into `at_start` what is complete when the node after `edge` starts, as far as that edge says; `at_start` holds
// what is said of `from`, its other end.
void enter_start(StartOrders& at_start, const Edge& edge, const PlanNode& from);

// Programmatic edges only where `device_allows`. Their reasons lie in `memory`.
std::vector<Edge> derive_edges(std::span<const PlanNode> nodes, const Orders& orders, EdgePolicy policy,
                               bool device_allows, std::pmr::memory_resource* memory);

}  // namespace nodewright
