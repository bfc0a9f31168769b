#include "graph/edges/edge_derivation.h"

#include <algorithm>
#include <utility>

#include "graph/edges/reachability.h"

namespace nodewright {
namespace {

std::vector<Edge> serial_edges(std::span<const PlanNode> nodes, const Orders& orders,
                               std::pmr::memory_resource* memory) {
  std::vector<Edge> edges;
  size_t next = 0;
  for (uint32_t to = 1; to < nodes.size(); ++to) {
    Edge edge{to - 1, to, EdgeType::full, {Reason{.hazard = Hazard::serial}}};
    for (; next < orders.list.size() && orders.list[next].node <= to; ++next)
      if (orders.list[next].node == to && orders.list[next].from == edge.from)
        edge.reasons = orders.reasons_of(next, memory);
    edges.push_back(std::move(edge));
  }
  return edges;
}

// Whether nodes[to] may read what nodes[from] writes before its wait, going by the reasons of their order.
bool reads_settled(const PlanNode& to, std::span<const Reason> reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const Reason& reason) {
    return reason.hazard == Hazard::raw && std::any_of(to.uses.begin(), to.uses.end(), [&](const Use& use) {
             return use.settled && use.buffer == reason.buffer && use.offset < reason.offset + reason.bytes &&
                    reason.offset < use.offset + use.bytes;
           });
  });
}

}  // namespace

void enter_start(StartOrders& at_start, const Edge& edge, const PlanNode& from) {
  if (edge.type == EdgeType::full)
    at_start.add_whole(edge.from, edge.to);
  else if (from.kernel->releases_after_wait)
    at_start.add_before(edge.from, edge.to);
  else
    at_start.add_start(edge.from, edge.to);
}

// Which edges are needed, and why fewer than the orders are enough.
//
// Let "A before B" mean: A has completed, and its writes are visible, before B touches any memory that is not frozen,
// and so before B completes. Frozen memory is written by no node of the plan (GraphBuilder refuses it), so it needs no
// order.
//   - A full edge A -> B gives it: B starts after A has completed.
//   - A programmatic edge A -> B gives it when B waits: B may start early, but touches only frozen memory until its
//   wait
//     returns, and the wait returns after A has completed. No thread of B ends without having waited (NODEWRIGHT_KERNEL
//     sees to that, or the author declares it), so B's completion still implies A's. A kernel that does not wait would
//     break both halves; it gets full edges only, whatever its neighbours do, and so does every node that is no kernel.
// Both give "B's completion implies A's", therefore "before" is transitive along paths of any mixture of the two types:
// if A -> B and B -> C are edges, A has completed before B completes, and B before C touches anything. So the edge
// A -> C is implied by any other path from A to C, and dropping it, whatever its type, loses no order. (It would, if B
// could finish without waiting: then B's completion would say nothing about A. That is the case excluded above.)
//
// Orders point from a smaller id to a larger one, so the graph has no cycle and its transitive reduction is unique:
// keep A -> C exactly when no other predecessor of C has A among its ancestors. Taking the predecessors of C from the
// largest id down, an ancestor's descendants are always seen before it. (An order over more than
// WindowRows::kWindow nodes becomes an edge, too, where Reachability finds no path.)
//
// Settled memory asks for more: who wrote it has completed when its reader starts. A node that starts finds complete
//   - the predecessor of a full edge, and all that is before it;
//   - whatever the predecessor of a programmatic edge found complete when it started, as that has started by then;
//   - all that is before that predecessor, if it lets dependents start only after its own wait: every block of it has
//     passed the wait by then, or has ended, which it does not do without having waited.
// (A stream's launches give no less: see graph/run/eager_run.cpp.) Where this does not hold for a node, its edges
// become full, which gives it everything that is before it. The last writers are enough: earlier ones are before them.
std::vector<Edge> derive_edges(std::span<const PlanNode> nodes, const Orders& orders, EdgePolicy policy,
                               bool device_allows, std::pmr::memory_resource* memory) {
  if (policy == EdgePolicy::serial) return serial_edges(nodes, orders, memory);
  const bool programmatic = policy == EdgePolicy::programmatic && device_allows;
  const bool any_settled =
      programmatic && std::any_of(nodes.begin(), nodes.end(), [](const PlanNode& node) {
        return std::any_of(node.uses.begin(), node.uses.end(), [](const Use& use) { return use.settled; });
      });
  Reachability before(nodes.size());
  StartOrders at_start(any_settled ? nodes.size() : 0, before);
  std::vector<Edge> edges;
  edges.reserve(nodes.size());
  for (size_t begin = 0, end = 0; begin < orders.list.size(); begin = end) {
    const uint32_t to = orders.list[begin].node;
    while (end < orders.list.size() && orders.list[end].node == to) ++end;
    const size_t first_edge = edges.size();
    for (size_t i = end; i-- > begin;) {
      const uint32_t from = orders.list[i].from;
      if (before.ordered(from, to)) continue;
      before.add(from, to);
      const bool early = programmatic && nodes[from].kind == NodeKind::kernel && nodes[to].waits_for_inputs;
      edges.push_back({from, to, early ? EdgeType::programmatic : EdgeType::full, orders.reasons_of(i, memory)});
    }
    std::reverse(edges.begin() + static_cast<std::ptrdiff_t>(first_edge), edges.end());
    if (!any_settled) continue;
    const std::span<Edge> added(edges.data() + first_edge, edges.size() - first_edge);
    const auto enter = [&] {
      for (const Edge& edge : added) enter_start(at_start, edge, nodes[edge.from]);
    };
    enter();
    for (size_t i = begin; i < end; ++i) {
      if (at_start.ordered(orders.list[i].from, to) || !reads_settled(nodes[to], orders.reasons_of(i))) continue;
      for (Edge& edge : added) edge.type = EdgeType::full;
      enter();
      break;
    }
  }
  return edges;
}

}  // namespace nodewright
