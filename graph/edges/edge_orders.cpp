#include "graph/edges/edge_orders.h"

#include <algorithm>
#include <span>

#include "graph/edges/edge_derivation.h"
#include "graph/edges/graph_work.h"
#include "graph/edges/reachability.h"

namespace nodewright {
namespace {

bool gives_order(const Plan& plan, const Edge& edge) {
  if (edge.from >= edge.to || edge.to >= plan.nodes.size()) return false;
  if (edge.type != EdgeType::programmatic) return edge.type == EdgeType::full;
  const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
  return from.kind == NodeKind::kernel && to.kind == NodeKind::kernel && to.waits_for_inputs;
}

// Items with a node each, those of a node together.
template <class Item>
struct ByNode {
  std::vector<uint32_t> first;  // by node, and the end
  std::vector<Item> items;

  std::span<const Item> of(uint32_t node) const {
    return std::span(items).subspan(first[node], first[node + 1] - first[node]);
  }
};

template <class Item, class Items, class ToItem, class ToNode>
ByNode<Item> by_node(size_t nodes, const Items& all, const ToItem& item_of, const ToNode& node_of) {
  ByNode<Item> result{std::vector<uint32_t>(nodes + 2), {}};
  for (const auto& one : all) ++result.first[node_of(one) + 2];
  for (size_t n = 2; n < result.first.size(); ++n) result.first[n] += result.first[n - 1];
  result.items.resize(result.first.back());
  for (const auto& one : all) result.items[result.first[node_of(one) + 1]++] = item_of(one);
  result.first.pop_back();
  return result;
}

// The edges that give an order, by their later node.
class InEdges {
 public:
  explicit InEdges(const Plan& plan) : plan_(plan), seen_(plan.nodes.size()) {
    std::vector<const Edge*> edges;
    edges.reserve(plan.edges.size());
    for (const Edge& edge : plan.edges)
      if (gives_order(plan, edge)) edges.push_back(&edge);
    in_edges_ = by_node<const Edge*>(
        plan.nodes.size(), edges, [](const Edge* edge) { return edge; }, [](const Edge* edge) { return edge->to; });
    for (uint32_t to = 0; to < plan.nodes.size(); ++to)  // the latest earlier node first
      std::sort(in_edges_.items.begin() + in_edges_.first[to], in_edges_.items.begin() + in_edges_.first[to + 1],
                [](const Edge* a, const Edge* b) { return a->from > b->from; });
  }

  std::span<const Edge* const> of(uint32_t to) const { return in_edges_.of(to); }

  // A walk back from `to`.
  bool leads(uint32_t from, uint32_t to) {
    ++walk_;
    open_.assign(1, to);
    while (!open_.empty()) {
      const uint32_t node = open_.back();
      open_.pop_back();
      for (const Edge* edge : of(node)) {
        ++graph_work;
        if (edge->from == from) return true;
        if (edge->from < from || seen_[edge->from] == walk_) continue;
        seen_[edge->from] = walk_;
        open_.push_back(edge->from);
      }
    }
    return false;
  }

  // The same for what has completed when `to` starts.
  bool has_completed(uint32_t from, uint32_t to) {
    std::vector<uint32_t> open{to};
    std::vector<bool> seen(plan_.nodes.size());
    while (!open.empty()) {
      const uint32_t node = open.back();
      open.pop_back();
      for (const Edge* edge : of(node)) {
        const bool is_full = edge->type == EdgeType::full;
        if (is_full && edge->from == from) return true;
        if (edge->from <= from || seen[edge->from]) continue;
        seen[edge->from] = true;
        if (is_full || plan_.nodes[edge->from].kernel->releases_after_wait) {
          if (leads(from, edge->from)) return true;
        } else {
          open.push_back(edge->from);
        }
      }
    }
    return false;
  }

 private:
  const Plan& plan_;
  ByNode<const Edge*> in_edges_;
  std::vector<uint32_t> open_, seen_;  // of leads(); `seen_`: the number of the walk
  uint32_t walk_ = 0;
};

}  // namespace

std::vector<OrderQuestion> unordered(const Plan& plan, std::vector<OrderQuestion> questions) {
  const size_t nodes = plan.nodes.size();
  InEdges edges(plan);
  const auto asked = by_node<OrderQuestion>(
      nodes, questions, [](const OrderQuestion& one) { return one; }, [](const OrderQuestion& one) { return one.to; });
  std::vector<OrderQuestion>().swap(questions);
  const bool any_early = std::ranges::any_of(asked.items, &OrderQuestion::early);
  Reachability before(nodes);
  StartOrders at_start(any_early ? nodes : 0, before);
  std::vector<OrderQuestion> found;
  for (uint32_t to = 0; to < nodes; ++to) {
    for (const Edge* edge : edges.of(to)) {
      before.add(edge->from, to);
      if (any_early) enter_start(at_start, *edge, plan.nodes[edge->from]);
    }
    for (const OrderQuestion& one : asked.of(to)) {
      const bool is_exact = one.early ? at_start.is_exact(one.from, to) : before.is_exact(one.from, to);
      if (one.early ? at_start.ordered(one.from, to) : before.ordered(one.from, to)) continue;
      if (is_exact || !(one.early ? edges.has_completed(one.from, to) : edges.leads(one.from, to)))
        found.push_back(one);
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace nodewright
