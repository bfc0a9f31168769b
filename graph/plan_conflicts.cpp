// Whether graphs of two plans may run at the same time: conflicts() and check_may_run_at_once() of hazard_check.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "graph/edges/touches.h"
#include "graph/hazard_check.h"

namespace nodewright {
namespace {

// Touches of one plan that reach the address where a sweep is.
struct OpenTouches {
  using ByEnd = std::multimap<uint64_t, const Touch*>;
  ByEnd readers, writers;

  void add(const Touch& touch) { (writes(touch.access) ? writers : readers).emplace(touch.end, &touch); }
  void close_before(uint64_t address) {
    for (ByEnd* open : {&readers, &writers}) open->erase(open->begin(), open->upper_bound(address));
  }
};

}  // namespace

std::vector<PlanConflict> conflicts(const Plan& a, const Plan& b, size_t most) {
  std::vector<Touch> touches;
  collect_touches(a, 0, touches);
  for (Touch& touch : touches) touch.of_first = true;
  collect_touches(b, 0, touches);
  // Each graph has conditions and allocations of its own, whatever their addresses in the plan.
  std::erase_if(touches, [](const Touch& touch) { return touch.begin >= kConditionBase || is_allocated(touch.begin); });
  sort_touches(touches);
  std::vector<PlanConflict> found;
  OpenTouches of_a, of_b;
  for (const Touch& touch : touches) {
    OpenTouches &own = touch.of_first ? of_a : of_b, &other = touch.of_first ? of_b : of_a;
    other.close_before(touch.begin);
    const auto meet = [&](const OpenTouches::ByEnd& open) {
      for (auto it = open.begin(); it != open.end() && found.size() < most; ++it) {
        const Touch &one = touch.of_first ? touch : *it->second, &two = touch.of_first ? *it->second : touch;
        found.push_back({one.node->name, std::string(one.field), two.node->name, std::string(two.field), touch.begin,
                         std::min(touch.end, it->first) - touch.begin});
      }
    };
    meet(other.writers);
    if (writes(touch.access)) meet(other.readers);
    if (found.size() >= most) break;
    own.add(touch);
  }
  return found;
}

void check_may_run_at_once(const Plan& a, const Plan& b) {
  const auto conditional = [](const PlanNode& node) { return node.kind == NodeKind::conditional; };
  if ((std::ranges::any_of(a.nodes, loops) && std::ranges::any_of(b.nodes, conditional)) ||
      (std::ranges::any_of(a.nodes, conditional) && std::ranges::any_of(b.nodes, loops)))
    throw Error({.doing = "run plan",
                 .object = a.name,
                 .detail = fmt::format("beside plan '{}': one has a loop, the other a conditional node, and the driver "
                                       "fails where those run at once",
                                       b.name),
                 .advice = "launch both on one stream, or put an event between them"});
  const std::vector<PlanConflict> found = conflicts(a, b, 1);
  if (found.empty()) return;
  const PlanConflict& first = found[0];
  throw Error({.doing = "run plan",
               .object = a.name,
               .detail = fmt::format(
                   "beside plan '{}': '{}' ({}) and '{}' ({}) share {:#x} + {} bytes, and one of them "
                   "writes",
                   b.name, first.node_a, first.field_a, first.node_b, first.field_b, first.address, first.bytes),
               .advice = "launch both on one stream, put an event between them, or give each a workspace of its own"});
}

}  // namespace nodewright
