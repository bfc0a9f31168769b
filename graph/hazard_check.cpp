#include "graph/hazard_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/reachability.h"

namespace nodewright {
namespace {

// One use as addresses: buffers of a plan, or of two plans, may overlap.
struct Touch {
  uint64_t begin = 0, end = 0;
  const PlanNode* node = nullptr;
  const Use* use = nullptr;
  const Buffer* buffer = nullptr;
};

void collect(const Plan& plan, std::vector<Touch>& touches) {
  for (const PlanNode& node : plan.nodes)
    for (const Use& use : node.uses) {
      const Buffer& buffer = plan.buffers.at(use.buffer);
      const uint64_t begin = buffer.range.address + use.offset;
      touches.push_back({begin, begin + use.bytes, &node, &use, &buffer});
    }
}

// Calls f(a, b, first shared address, end) for every two touches that share bytes, at least one of them writing.
template <class Function>
void for_each_clash(std::vector<Touch>& touches, Function&& f) {
  std::stable_sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
  std::vector<const Touch*> open;  // those that reach the current address
  for (const Touch& touch : touches) {
    std::erase_if(open, [&](const Touch* earlier) { return earlier->end <= touch.begin; });
    for (const Touch* earlier : open)
      if (writes(earlier->use->access) || writes(touch.use->access))
        f(*earlier, touch, touch.begin, std::min(earlier->end, touch.end));
    open.push_back(&touch);
  }
}

bool gives_order(const Plan& plan, const Edge& edge) {
  if (edge.from >= edge.to || edge.to >= plan.nodes.size()) return false;
  if (edge.type == EdgeType::full) return true;
  const PlanNode &from = plan.nodes[edge.from], &to = plan.nodes[edge.to];
  return from.kind == NodeKind::kernel && to.kind == NodeKind::kernel && to.waits_for_inputs;
}

Reachability orders_of(const Plan& plan) {
  std::vector<const Edge*> edges;
  for (const Edge& edge : plan.edges)
    if (gives_order(plan, edge)) edges.push_back(&edge);
  std::sort(edges.begin(), edges.end(), [](const Edge* a, const Edge* b) { return a->to < b->to; });
  Reachability before(plan.nodes.size());
  for (const Edge* edge : edges) before.add(edge->from, edge->to);
  return before;
}

}  // namespace

std::string describe(const MissingOrder& missing) {
  return fmt::format("'{}' ({}: {}) and '{}' ({}: {}) share {}[{},{}) without an order", missing.first_name,
                     missing.first_field, to_string(missing.first_access), missing.second_name, missing.second_field,
                     to_string(missing.second_access), missing.buffer, missing.offset, missing.offset + missing.bytes);
}

std::vector<MissingOrder> missing_orders(const Plan& plan) {
  const Reachability before = orders_of(plan);
  std::vector<Touch> touches;
  collect(plan, touches);
  std::vector<MissingOrder> missing;
  for_each_clash(touches, [&](const Touch& x, const Touch& y, uint64_t begin, uint64_t end) {
    if (x.node == y.node) return;  // refused when the node is added: no edge can help
    const bool swapped = x.node->id > y.node->id;
    const Touch &a = swapped ? y : x, &b = swapped ? x : y;
    const bool frozen = a.use->access == Access::frozen || b.use->access == Access::frozen;
    if (!frozen && before.ordered(a.node->id, b.node->id)) return;
    missing.push_back({a.node->id, b.node->id, a.node->name, b.node->name, a.use->field, b.use->field, a.use->access,
                       b.use->access, a.buffer->range.name, begin - a.buffer->range.address, end - begin});
  });
  return missing;
}

std::vector<PlanConflict> conflicts(const Plan& a, const Plan& b) {
  std::vector<Touch> touches;
  collect(a, touches);
  const auto in_a = [&](const Touch& touch) {
    return !a.nodes.empty() && touch.node >= &a.nodes.front() && touch.node <= &a.nodes.back();
  };
  collect(b, touches);
  std::vector<PlanConflict> found;
  for_each_clash(touches, [&](const Touch& x, const Touch& y, uint64_t begin, uint64_t end) {
    if (in_a(x) == in_a(y)) return;
    const Touch &one = in_a(x) ? x : y, &two = in_a(x) ? y : x;
    found.push_back({one.node->name, one.use->field, two.node->name, two.use->field, begin, end - begin});
  });
  return found;
}

}  // namespace nodewright
