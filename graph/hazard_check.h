// Checks a plan's edges against its uses, byte by byte. Shares nothing with the tracker that derived the edges: what it
// finds missing is missing, however the plan was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// Two nodes that touch the same bytes, at least one of them writing, and that no path of edges orders.
struct MissingOrder {
  uint32_t first = 0, second = 0;                                // node ids, first < second
  std::string first_name, second_name;                           // of the nodes
  std::string first_field, second_field;                         // of each node's use
  Access first_access = Access::in, second_access = Access::in;  // what each does there
  std::string buffer;                                            // its name
  uint64_t offset = 0, bytes = 0;                                // the bytes they share, in `buffer`
};

// "'l0.norm' (y: out) and 'l0.qkv' (x: in) share normed[0,4096) without an order"
std::string describe(const MissingOrder& missing);

// How many are listed at most.
inline constexpr size_t kMostMissingOrders = 1000;

// Empty for a correct plan. By address, at most kMostMissingOrders: of nodes that touch the same bytes one after the
// other, the ones that no path orders, not all pairs that this leaves without an order. Counts a programmatic edge only
// where it goes from a kernel to a kernel that waits. Reports what may be read before the wait: a frozen use of
// anything that a node writes, ordered or not, and a settled use of what need not be complete when the reader starts.
// O(uses log uses + edges), and for each order over more than 4096 nodes a path of chains (edges/reachability.h).
std::vector<MissingOrder> missing_orders(const Plan& plan);

// One use of each of two plans, field_a of node_a and field_b of node_b, of the same bytes: `bytes` from `address` on,
// at least one writing. Plans that conflict must not run at once: run them on one stream, or put an event between them.
struct PlanConflict {
  std::string node_a, field_a, node_b, field_b;
  uint64_t address = 0, bytes = 0;
};
// The first `most` by address; also of a plan with itself: two graphs of it. O(uses log uses + conflicts).
std::vector<PlanConflict> conflicts(const Plan& a, const Plan& b, size_t most = 1000);
// Throws Error with the first conflict, and where one plan has a loop and the other a conditional node: the driver runs
// a loop beside no other conditional node (see loops_address in graph/node.h).
void check_may_run_at_once(const Plan& a, const Plan& b);

}  // namespace nodewright
