// From what each node must follow to the edges of a plan: none that a path implies, each of the cheapest type that is
// safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// serial: one chain in the order of the calls. full: the derived edges, all full. programmatic: the derived edges,
// programmatic wherever the kernels and the device allow it.
enum class EdgePolicy : uint8_t { serial, full, programmatic };

// `node` must follow `from`, a smaller id.
struct OrderedAfter {
  uint32_t node = 0, from = 0;
  std::vector<Reason> reasons;
};

// `orders` by node, then by from, each pair once. Programmatic edges only where `device_allows`.
std::vector<Edge> derive_edges(std::span<const PlanNode> nodes, std::vector<OrderedAfter> orders, EdgePolicy policy,
                               bool device_allows);

}  // namespace nodewright
