// The ranges that nodes of a plan declare frozen, each with a node that does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace nodewright {

// Disjoint ranges by address. Every call costs the logarithm of their number, and the ranges that it meets.
class FrozenRanges {
 public:
  void add(uint64_t begin, uint64_t end, uint32_t node) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin()) begin = std::max(begin, std::prev(it)->second.end);
    while (begin < end) {  // what no range covers yet
      const uint64_t gap_end = it == ranges_.end() ? end : std::min(end, it->first);
      if (begin < gap_end) ranges_.emplace_hint(it, begin, Range{gap_end, node});
      if (it == ranges_.end() || it->first >= end) return;
      begin = it->second.end;
      ++it;
    }
  }

  // A node that declares a byte of [begin, end) frozen.
  std::optional<uint32_t> node_of(uint64_t begin, uint64_t end) const {
    const auto above = ranges_.lower_bound(end);
    if (above == ranges_.begin()) return std::nullopt;
    const Range& last = std::prev(above)->second;
    return last.end > begin ? std::optional(last.node) : std::nullopt;
  }

 private:
  struct Range {
    uint64_t end = 0;
    uint32_t node = 0;
  };
  std::map<uint64_t, Range> ranges_;
};

}  // namespace nodewright
