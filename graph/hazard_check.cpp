#include "graph/hazard_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "graph/edges/edge_derivation.h"
#include "graph/edges/reachability.h"

namespace nodewright {
namespace {

// One use as addresses: buffers of a plan, or of two plans, may overlap.
struct Touch {
  uint64_t begin = 0, end = 0;
  Access access = Access::in;
  const PlanNode* node = nullptr;
  std::string_view field;
  const Buffer* buffer = nullptr;
  bool of_first = false;  // of the two plans that conflicts() compares
  bool settled = false;   // perhaps read before the wait
};

// What the nodes inside `node` touch, as `node`'s own: the driver starts none of them before `node`, so that what they
// declare frozen or settled is read no earlier than the rest. `plan` is the one that `use` names its buffer in.
void collect_nested(const Plan& plan, const PlanNode& node, std::vector<Touch>& touches);

// What a node touches because of conditions, whatever its uses say: a conditional node reads the one that it obeys, a
// loop has every other node before it or after it, and so has a node of a loop's body. `loop_around`: of a loop's
// body, loops_address of the plan that the loop is in, else 0.
void collect_condition(const Plan& plan, const PlanNode& node, bool has_loops, uint64_t loop_around,
                       std::vector<Touch>& touches) {
  const auto collect_at = [&](uint64_t address, Access access, std::string_view field) {
    for (const Buffer& buffer : plan.buffers)
      if (buffer.range.address == address)
        touches.push_back({address, address + kConditionBytes, access, &node, field, &buffer});
  };
  if (node.kind == NodeKind::conditional) collect_at(node.condition, Access::in, kConditionField);
  if (has_loops) collect_at(loops_address(plan.name), loops(node) ? Access::inout : Access::in, kLoopsField);
  if (loop_around != 0) collect_at(loop_around, Access::inout, kLoopsField);
}

void collect(const Plan& plan, uint64_t loop_around, std::vector<Touch>& touches) {
  const bool has_loops = std::any_of(plan.nodes.begin(), plan.nodes.end(), loops);
  size_t uses = touches.size();
  for (const PlanNode& node : plan.nodes) uses += node.uses.size();
  touches.reserve(uses);
  for (const PlanNode& node : plan.nodes) {
    if (!plan.conditions.empty() || loop_around != 0) collect_condition(plan, node, has_loops, loop_around, touches);
    if (!node.bodies.empty()) {
      for (const auto& body : node.bodies) collect_nested(*body, node, touches);
      continue;
    }
    for (const Use& use : node.uses) {
      const Buffer& buffer = plan.buffers.at(use.buffer);
      const uint64_t begin = buffer.range.address + use.offset;
      touches.push_back({begin, begin + use.bytes, use.access, &node, use.field, &buffer, false, use.settled});
    }
  }
}

void collect_nested(const Plan& plan, const PlanNode& node, std::vector<Touch>& touches) {
  for (const PlanNode& inner : plan.nodes) {
    for (const auto& body : inner.bodies) collect_nested(*body, node, touches);
    if (!inner.bodies.empty()) continue;
    for (const Use& use : inner.uses) {
      const Buffer& buffer = plan.buffers.at(use.buffer);
      const uint64_t begin = buffer.range.address + use.offset;
      const Access access = use.access == Access::frozen ? Access::in : use.access;
      touches.push_back({begin, begin + use.bytes, access, &node, use.field, &buffer});
    }
  }
}

// `touches` by first address. Calls f(a, b, first shared address, end) for every two touches that share bytes, at least
// one of them writing.
template <class Function>
void for_each_clash(std::span<const Touch> touches, Function&& f) {
  std::vector<const Touch*> open;  // those that reach the current address
  for (const Touch& touch : touches) {
    std::erase_if(open, [&](const Touch* earlier) { return earlier->end <= touch.begin; });
    for (const Touch* earlier : open)
      if (writes(earlier->access) || writes(touch.access))
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

// What is complete before a node touches anything that is neither frozen nor settled, and what before it starts.
struct PlanOrders {
  Reachability before, at_start;

  bool ordered(const Touch& earlier, const Touch& later) const {
    const bool early = later.settled && writes(earlier.access);
    return (early ? at_start : before).ordered(earlier.node->id, later.node->id);
  }
};

PlanOrders orders_of(const Plan& plan, bool any_settled) {
  std::vector<const Edge*> edges;
  edges.reserve(plan.edges.size());
  for (const Edge& edge : plan.edges)
    if (gives_order(plan, edge)) edges.push_back(&edge);
  const auto by_to = [](const Edge* a, const Edge* b) { return a->to < b->to; };
  if (!std::is_sorted(edges.begin(), edges.end(), by_to)) std::sort(edges.begin(), edges.end(), by_to);
  PlanOrders orders{Reachability(plan.nodes.size()), Reachability(any_settled ? plan.nodes.size() : 0)};
  for (const Edge* edge : edges) {
    orders.before.add(edge->from, edge->to);
    if (any_settled) enter_start(orders.at_start, orders.before, *edge, plan.nodes[edge->from]);
  }
  return orders;
}

// By first address, then in the order in which they were collected.
void sort_by_address(std::vector<Touch>& touches) {
  std::stable_sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
}

// The same where all touches are of the plan's own buffers and no two of those overlap: few buffers are touched by many
// nodes, so the touches are counted into place buffer by buffer. False, and nothing done, for other plans.
bool sort_by_buffer(const Plan& plan, std::vector<Touch>& touches) {
  std::vector<uint32_t> by_address(plan.buffers.size());
  std::iota(by_address.begin(), by_address.end(), 0);
  const auto range_of = [&](uint32_t buffer) -> const NamedRange& { return plan.buffers[buffer].range; };
  std::sort(by_address.begin(), by_address.end(),
            [&](uint32_t a, uint32_t b) { return range_of(a).address < range_of(b).address; });
  for (size_t i = 1; i < by_address.size(); ++i) {
    const NamedRange& before = range_of(by_address[i - 1]);
    if (before.address + before.bytes > range_of(by_address[i]).address) return false;
  }
  const std::less<const Buffer*> below;
  const Buffer* const first = plan.buffers.data();
  std::vector<size_t> next(plan.buffers.size() + 1);  // by buffer: how many touches, then where its next one goes
  for (const Touch& touch : touches) {
    if (below(touch.buffer, first) || !below(touch.buffer, first + plan.buffers.size())) return false;
    if (touch.end > touch.buffer->range.address + touch.buffer->range.bytes) return false;
    ++next[static_cast<size_t>(touch.buffer - first)];
  }
  size_t at = 0;
  for (const uint32_t buffer : by_address) at += std::exchange(next[buffer], at);
  std::vector<Touch> sorted(touches.size());
  for (const Touch& touch : touches) sorted[next[static_cast<size_t>(touch.buffer - first)]++] = touch;
  touches.swap(sorted);
  const auto by_begin = [](const Touch& a, const Touch& b) { return a.begin < b.begin; };
  for (auto begin = touches.begin(); begin != touches.end();) {
    const auto end = std::find_if(begin, touches.end(), [&](const Touch& t) { return t.buffer != begin->buffer; });
    if (!std::is_sorted(begin, end, by_begin)) std::stable_sort(begin, end, by_begin);
    begin = end;
  }
  return true;
}

// Whether each of `touches`, which share bytes and come by node, is ordered after the last one that it must follow.
// That orders all of them, since orders are transitive.
bool chain_is_ordered(std::span<const Touch* const> touches, const PlanOrders& orders) {
  const Touch* writer = nullptr;
  bool frozen = false, written = false;
  size_t first_reader = 0, end_of_readers = 0;  // since `writer`, in `touches`
  for (size_t i = 0; i < touches.size(); ++i) {
    const Touch& touch = *touches[i];
    const auto follows = [&](const Touch& earlier) {
      return earlier.node == touch.node || orders.ordered(earlier, touch);
    };
    frozen |= touch.access == Access::frozen;
    written |= writes(touch.access);
    if (frozen && written) return false;
    if (writer != nullptr && !follows(*writer)) return false;
    if (writes(touch.access)) {
      for (size_t r = first_reader; r < end_of_readers; ++r)
        if (!follows(*touches[r])) return false;
      writer = &touch;
      first_reader = i + 1;
    }
    end_of_readers = i + 1;
  }
  return true;
}

// The same for every byte that `touches` reach: they overlap one another, directly or through others.
bool all_ordered(std::span<const Touch> touches, const PlanOrders& orders, std::vector<const Touch*>& scratch) {
  const auto ordered_at = [&](uint64_t at) {
    scratch.clear();
    for (const Touch& touch : touches)
      if (touch.begin <= at && at < touch.end) scratch.push_back(&touch);
    const auto by_node = [](const Touch* a, const Touch* b) { return a->node->id < b->node->id; };
    if (!std::is_sorted(scratch.begin(), scratch.end(), by_node))
      std::stable_sort(scratch.begin(), scratch.end(), by_node);
    return chain_is_ordered(scratch, orders);
  };
  const bool alike = std::all_of(touches.begin(), touches.end(), [&](const Touch& touch) {
    return touch.begin == touches[0].begin && touch.end == touches[0].end;
  });
  if (alike) return ordered_at(touches[0].begin);
  std::vector<uint64_t> cuts;
  for (const Touch& touch : touches) cuts.insert(cuts.end(), {touch.begin, touch.end});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return std::all_of(cuts.begin(), cuts.end(), ordered_at);
}

std::vector<MissingOrder> missing_orders(const Plan& plan, uint64_t loop_around) {
  std::vector<Touch> touches;
  collect(plan, loop_around, touches);
  const PlanOrders orders =
      orders_of(plan, std::any_of(touches.begin(), touches.end(), [](const Touch& touch) { return touch.settled; }));
  if (!sort_by_buffer(plan, touches)) sort_by_address(touches);
  std::vector<MissingOrder> missing;
  const auto report = [&](const Touch& x, const Touch& y, uint64_t begin, uint64_t end) {
    if (x.node == y.node) return;  // refused when the node is added: no edge can help
    const bool swapped = x.node->id > y.node->id;
    const Touch &a = swapped ? y : x, &b = swapped ? x : y;
    const bool frozen = a.access == Access::frozen || b.access == Access::frozen;
    if (!frozen && orders.ordered(a, b)) return;
    missing.push_back({a.node->id, b.node->id, a.node->name, b.node->name, std::string(a.field), std::string(b.field),
                       a.access, b.access, a.buffer->range.name, begin - a.buffer->range.address, end - begin});
  };
  std::vector<const Touch*> scratch;
  for (size_t first = 0, last = 0; first < touches.size(); first = last) {
    for (uint64_t end = touches[first].end; last < touches.size() && (last == first || touches[last].begin < end);
         ++last)
      end = std::max(end, touches[last].end);
    const std::span<const Touch> together(&touches[first], last - first);
    if (!all_ordered(together, orders, scratch)) for_each_clash(together, report);
  }
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies)
      for (MissingOrder& inside :
           missing_orders(*body, node.conditional == ConditionalKind::while_ ? loops_address(plan.name) : 0))
        missing.push_back(std::move(inside));
  return missing;
}

}  // namespace

std::string describe(const MissingOrder& missing) {
  return fmt::format("'{}' ({}: {}) and '{}' ({}: {}) share {}[{},{}) without an order", missing.first_name,
                     missing.first_field, to_string(missing.first_access), missing.second_name, missing.second_field,
                     to_string(missing.second_access), missing.buffer, missing.offset, missing.offset + missing.bytes);
}

std::vector<MissingOrder> missing_orders(const Plan& plan) { return missing_orders(plan, 0); }

std::vector<PlanConflict> conflicts(const Plan& a, const Plan& b) {
  std::vector<Touch> touches;
  collect(a, 0, touches);
  for (Touch& touch : touches) touch.of_first = true;
  collect(b, 0, touches);
  // Each graph has conditions and allocations of its own, whatever their addresses in the plan.
  std::erase_if(touches, [](const Touch& touch) { return touch.begin >= kConditionBase || is_allocated(touch.begin); });
  sort_by_address(touches);
  std::vector<PlanConflict> found;
  for_each_clash(touches, [&](const Touch& x, const Touch& y, uint64_t begin, uint64_t end) {
    if (x.of_first == y.of_first) return;
    const Touch &one = x.of_first ? x : y, &two = x.of_first ? y : x;
    found.push_back(
        {one.node->name, std::string(one.field), two.node->name, std::string(two.field), begin, end - begin});
  });
  return found;
}

void check_may_run_at_once(const Plan& a, const Plan& b) {
  const auto any_of = [](const Plan& plan, const auto& matches) {
    return std::any_of(plan.nodes.begin(), plan.nodes.end(), matches);
  };
  const auto conditional = [](const PlanNode& node) { return node.kind == NodeKind::conditional; };
  if ((any_of(a, loops) && any_of(b, conditional)) || (any_of(a, conditional) && any_of(b, loops)))
    throw Error({.doing = "run plan",
                 .object = a.name,
                 .detail = fmt::format("beside plan '{}': one has a loop, the other a conditional node, and the driver "
                                       "fails where those run at once",
                                       b.name),
                 .advice = "launch both on one stream, or put an event between them"});
  const std::vector<PlanConflict> found = conflicts(a, b);
  if (found.empty()) return;
  const PlanConflict& first = found[0];
  throw Error({.doing = "run plan",
               .object = a.name,
               .detail = fmt::format("beside plan '{}': {} conflicts, the first: '{}' ({}) and '{}' ({}) share {:#x} + "
                                     "{} bytes, and one of them writes",
                                     b.name, found.size(), first.node_a, first.field_a, first.node_b, first.field_b,
                                     first.address, first.bytes),
               .advice = "launch both on one stream, put an event between them, or give each a workspace of its own"});
}

}  // namespace nodewright
