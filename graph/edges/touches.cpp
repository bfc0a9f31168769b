#include "graph/edges/touches.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

namespace nodewright {
namespace {

void collect_nested(const Plan& plan, const PlanNode& node, std::vector<Touch>& touches) {
  for (const PlanNode& inner : plan.nodes) {
    for (const auto& body : inner.bodies) collect_nested(*body, node, touches);
    if (!inner.bodies.empty()) continue;
    for (const Use& use : inner.uses) {
      const Buffer& buffer = plan.buffers.at(use.buffer);
      const uint64_t begin = buffer.range.address + use.offset;
      const Access access = use.access == Access::frozen ? Access::in : use.access;
      touches.push_back({begin, begin + use.bytes, access, false, false, node.id, &node, use.field, &buffer});
    }
  }
}

// What nodes touch because of conditions, whatever their uses say: a conditional node reads the one that it obeys, a
// loop has every other node before it or after it, and so has a node of a loop's body.
class ConditionTouches {
 public:
  ConditionTouches(const Plan& plan, uint64_t loop_around, std::vector<Touch>& touches)
      : loop_around_(loop_around), loops_(loops_address(plan.name)), touches_(touches) {
    for (const Buffer& buffer : plan.buffers)
      if (buffer.range.address >= kConditionBase) conditions_.push_back(&buffer);
    std::ranges::sort(conditions_, {}, [](const Buffer* buffer) { return buffer->range.address; });
    has_loops_ = std::ranges::any_of(plan.nodes, loops);
  }

  void collect(const PlanNode& node) {
    if (node.kind == NodeKind::conditional) touch(node, node.condition, Access::in, kConditionField);
    if (has_loops_) touch(node, loops_, loops(node) ? Access::inout : Access::in, kLoopsField);
    if (loop_around_ != 0) touch(node, loop_around_, Access::inout, kLoopsField);
  }

 private:
  void touch(const PlanNode& node, uint64_t address, Access access, std::string_view field) {
    const auto found =
        std::ranges::lower_bound(conditions_, address, {}, [](const Buffer* buffer) { return buffer->range.address; });
    if (found == conditions_.end() || (*found)->range.address != address) return;
    touches_.push_back({address, address + kConditionBytes, access, false, false, node.id, &node, field, *found});
  }

  std::vector<const Buffer*> conditions_;  // by address
  uint64_t loop_around_, loops_;
  bool has_loops_ = false;
  std::vector<Touch>& touches_;
};

// A sort by digits is quicker for more touches than that.
constexpr std::ptrdiff_t kSortedByDigits = 256;

// Sorts the touches of one buffer by their first byte, those that share it as they were.
void sort_by_digits(std::span<Touch> touches) {
  constexpr unsigned kBits = 11;  // of a digit
  constexpr size_t kDigits = 1 << kBits;
  struct Key {
    uint64_t offset = 0;
    size_t touch = 0;
  };
  uint64_t first = touches[0].begin, last = first;
  for (const Touch& touch : touches) {
    first = std::min(first, touch.begin);
    last = std::max(last, touch.begin);
  }
  std::vector<Key> keys(touches.size()), sorted(touches.size());
  for (size_t i = 0; i < touches.size(); ++i) keys[i] = {touches[i].begin - first, i};
  for (unsigned shift = 0; shift < 64 && (last - first) >> shift != 0; shift += kBits) {
    std::array<size_t, kDigits + 1> next{};
    const auto digit = [&](const Key& key) { return static_cast<size_t>(key.offset >> shift) % kDigits; };
    for (const Key& key : keys) ++next[digit(key) + 1];
    for (size_t d = 1; d < next.size(); ++d) next[d] += next[d - 1];
    for (const Key& key : keys) sorted[next[digit(key)]++] = key;
    keys.swap(sorted);
  }
  const std::vector<Touch> before(touches.begin(), touches.end());
  for (size_t i = 0; i < keys.size(); ++i) touches[i] = before[keys[i].touch];
}

}  // namespace

void collect_touches(const Plan& plan, uint64_t loop_around, std::vector<Touch>& touches) {
  size_t uses = touches.size();
  for (const PlanNode& node : plan.nodes) uses += node.uses.size();
  touches.reserve(uses);
  const bool has_conditions = !plan.conditions.empty() || loop_around != 0;
  ConditionTouches conditions(plan, loop_around, touches);
  for (const PlanNode& node : plan.nodes) {
    if (has_conditions) conditions.collect(node);
    if (!node.bodies.empty()) {
      for (const auto& body : node.bodies) collect_nested(*body, node, touches);
      continue;
    }
    for (const Use& use : node.uses) {
      const Buffer& buffer = plan.buffers.at(use.buffer);
      const uint64_t begin = buffer.range.address + use.offset;
      touches.push_back({begin, begin + use.bytes, use.access, use.settled, false, node.id, &node, use.field, &buffer});
    }
  }
}

void sort_touches(std::vector<Touch>& touches) { std::ranges::stable_sort(touches, {}, &Touch::begin); }

// Most touches begin where their buffer does, or rise within it: those of a buffer are counted into place, and sorted
// where they have to be.
void sort_touches(const Plan& plan, std::vector<Touch>& touches) {
  const auto by_begin = [](const Touch& a, const Touch& b) { return a.begin < b.begin; };
  const Buffer* const first = plan.buffers.data();
  std::vector<uint32_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](uint32_t id) { return first[id].range.address; });
  std::vector<size_t> next(plan.buffers.size() + 1);  // by buffer: how many touches, then where its next one goes
  for (const Touch& touch : touches) {
    const std::less<> below;
    if (below(touch.buffer, first) || !below(touch.buffer, first + plan.buffers.size())) {  // of a plan inside
      sort_touches(touches);
      return;
    }
    ++next[static_cast<size_t>(touch.buffer - first)];
  }
  size_t at = 0;
  for (const uint32_t id : order) at += std::exchange(next[id], at);
  std::vector<Touch> sorted(touches.size());
  for (const Touch& touch : touches) sorted[next[static_cast<size_t>(touch.buffer - first)]++] = touch;
  touches.swap(sorted);
  for (auto begin = touches.begin(); begin != touches.end();) {
    const auto end = std::find_if(begin, touches.end(), [&](const Touch& t) { return t.buffer != begin->buffer; });
    if (!std::is_sorted(begin, end, by_begin)) {
      if (end - begin > kSortedByDigits)
        sort_by_digits({begin, end});
      else
        std::stable_sort(begin, end, by_begin);
    }
    begin = end;
  }
}

size_t end_of_overlap(std::span<const Touch> sorted, size_t first) {
  size_t last = first + 1;
  for (uint64_t end = sorted[first].end; last < sorted.size() && sorted[last].begin < end; ++last)
    end = std::max(end, sorted[last].end);
  return last;
}

}  // namespace nodewright
