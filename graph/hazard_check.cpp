#include "graph/hazard_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <span>
#include <utility>

#include "graph/edges/edge_orders.h"
#include "graph/edges/graph_work.h"
#include "graph/edges/touches.h"

namespace nodewright {
namespace {

// Touches of the bytes where a sweep over addresses is, by node. Calls f(earlier, later) for a new one and each that it
// must follow or that must follow it: the last writer before it, the first after it, and for a writer the readers
// between those. The others are ordered through these, since orders are transitive. A frozen touch meets every writer.
class SweptBytes {
 public:
  template <class Function>
  void add(const Touch& touch, const Function& f) {
    while (!ends_.empty() && ends_.top().first <= touch.begin) {
      remove(*ends_.top().second);
      ends_.pop();
    }
    ends_.emplace(touch.end, &touch);
    if (touch.access == Access::frozen) {
      for (const Touch* writer : writers_) f(*writer, touch);
      insert(frozen_, touch);
      return;
    }
    const auto next = writers_.upper_bound(&touch);
    const auto after = std::find_if(next, writers_.end(), [&](const Touch* w) { return w->node != touch.node; });
    auto first = writers_.lower_bound(&touch);
    while (first != writers_.begin() && (*std::prev(first))->node == touch.node) --first;
    const Touch* const before = first == writers_.begin() ? nullptr : *std::prev(first);
    if (before != nullptr) f(*before, touch);
    if (after != writers_.end()) f(touch, **after);
    if (!writes(touch.access)) {
      insert(readers_, touch);
      return;
    }
    auto reader = before == nullptr ? readers_.begin() : readers_.lower_bound(before);
    for (; reader != readers_.end(); ++reader) {
      const uint32_t id = (*reader)->id;
      if (after != writers_.end() && id > (*after)->id) break;
      if (id < touch.id) f(**reader, touch);
      if (id > touch.id) f(touch, **reader);
    }
    for (const Touch* frozen : frozen_) f(*frozen, touch);
    insert(writers_, touch);
  }

 private:
  struct ByNode {
    bool operator()(const Touch* a, const Touch* b) const {
      return a->id != b->id ? a->id < b->id : std::less<>()(a, b);
    }
  };
  using Touches = std::set<const Touch*, ByNode>;

  // The sets' nodes come and go with every touch: those that go are used again.
  void insert(Touches& touches, const Touch& touch) {
    if (spare_.empty()) {
      touches.insert(&touch);
      return;
    }
    spare_.back().value() = &touch;
    touches.insert(std::move(spare_.back()));
    spare_.pop_back();
  }
  void remove(const Touch& touch) {
    Touches& touches = touch.access == Access::frozen ? frozen_ : writes(touch.access) ? writers_ : readers_;
    if (auto node = touches.extract(&touch)) spare_.push_back(std::move(node));
  }

  Touches readers_, writers_, frozen_;
  std::vector<Touches::node_type> spare_;
  using End = std::pair<uint64_t, const Touch*>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

// The same for touches of the very same bytes, by node: quicker, and most buffers are used as a whole.
template <class Function>
void sweep_alike(std::span<const Touch* const> touches, const Function& f) {
  const Touch* writer = nullptr;
  bool any_frozen = false, any_written = false;
  size_t first_reader = 0;  // since `writer`
  for (size_t i = 0; i < touches.size(); ++i) {
    const Touch& touch = *touches[i];
    any_frozen |= touch.access == Access::frozen;
    any_written |= writes(touch.access);
    if (touch.access == Access::frozen) continue;
    if (writer != nullptr) f(*writer, touch);
    if (!writes(touch.access)) continue;
    for (size_t r = first_reader; r < i; ++r)
      if (touches[r]->access != Access::frozen) f(*touches[r], touch);
    writer = &touch;
    first_reader = i + 1;
  }
  if (!any_frozen || !any_written) return;
  for (const Touch* frozen : touches)
    for (const Touch* other : touches)
      if (frozen->access == Access::frozen && writes(other->access)) f(*frozen, *other);
}

// Calls f(a, b) for the touches that must be ordered, a's node having the smaller id, or for a frozen one and a writer.
template <class Function>
void for_each_needed(std::span<const Touch> touches, const Function& f) {
  const auto in_order = [&](const Touch& a, const Touch& b) {
    ++graph_work;
    if (a.id < b.id) f(a, b);
    if (b.id < a.id) f(b, a);  // of one node: refused when the node is added, no edge can help
  };
  std::vector<const Touch*> by_node;
  SweptBytes swept;
  for (size_t first = 0, last = 0; first < touches.size(); first = last) {
    last = end_of_overlap(touches, first);
    if (last - first == 1) continue;
    const std::span<const Touch> together = touches.subspan(first, last - first);
    const bool alike = std::ranges::all_of(
        together, [&](const Touch& touch) { return touch.begin == together[0].begin && touch.end == together[0].end; });
    if (alike) {
      by_node.clear();
      for (const Touch& touch : together) by_node.push_back(&touch);
      const auto by_id = [](const Touch* a, const Touch* b) { return a->id < b->id; };
      if (!std::is_sorted(by_node.begin(), by_node.end(), by_id))
        std::stable_sort(by_node.begin(), by_node.end(), by_id);
      sweep_alike(by_node, in_order);
    } else {
      for (const Touch& touch : together) swept.add(touch, in_order);
    }
  }
}

OrderQuestion question_of(const Touch& earlier, const Touch& later) {
  return {earlier.id, later.id, later.settled && writes(earlier.access)};
}

bool meets_frozen(const Touch& a, const Touch& b) { return a.access == Access::frozen || b.access == Access::frozen; }

MissingOrder missing_order(const Touch& a, const Touch& b) {
  const uint64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return {a.id,
          b.id,
          a.node->name,
          b.node->name,
          std::string(a.field),
          std::string(b.field),
          a.access,
          b.access,
          a.buffer->range.name,
          begin - a.buffer->range.address,
          end - begin};
}

std::vector<MissingOrder> missing_orders(const Plan& plan, uint64_t loop_around) {
  std::vector<Touch> touches;
  collect_touches(plan, loop_around, touches);
  sort_touches(plan, touches);
  std::vector<OrderQuestion> questions;
  bool any_frozen = false;
  for_each_needed(touches, [&](const Touch& a, const Touch& b) {
    if (meets_frozen(a, b))
      any_frozen = true;
    else if (const OrderQuestion question = question_of(a, b); questions.empty() || questions.back() != question)
      questions.push_back(question);
  });
  const std::vector<OrderQuestion> open = unordered(plan, std::move(questions));
  std::vector<MissingOrder> missing;
  if (any_frozen || !open.empty())
    for_each_needed(touches, [&](const Touch& a, const Touch& b) {
      if (missing.size() == kMostMissingOrders) return;
      if (meets_frozen(a, b) || std::ranges::binary_search(open, question_of(a, b)))
        missing.push_back(missing_order(a, b));
    });
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies)
      for (MissingOrder& inside :
           missing_orders(*body, node.conditional == ConditionalKind::while_ ? loops_address(plan.name) : 0))
        if (missing.size() < kMostMissingOrders) missing.push_back(std::move(inside));
  return missing;
}

}  // namespace

std::string describe(const MissingOrder& missing) {
  return fmt::format("'{}' ({}: {}) and '{}' ({}: {}) share {}[{},{}) without an order", missing.first_name,
                     missing.first_field, to_string(missing.first_access), missing.second_name, missing.second_field,
                     to_string(missing.second_access), missing.buffer, missing.offset, missing.offset + missing.bytes);
}

std::vector<MissingOrder> missing_orders(const Plan& plan) { return missing_orders(plan, 0); }

}  // namespace nodewright
