// What the plans inside a node do with memory, as uses of that node.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// A copy of `name` that lives as long as the program, as a use's field does: a use outlives the inner plan whose node
// it is named after, where patch_child puts another plan in its place. There are as many as there are names of inner
// nodes.
std::string_view kept_name(std::string_view name);

// What the nodes of a plan, taken as one node, do with a range.
struct NestedUse {
  uint64_t begin = 0, end = 0;
  uint64_t buffer = 0;     // where the buffer starts that it lies in
  std::string_view field;  // the first node that touches it
  bool writes = false, reads_first = false;

  Access access() const {
    if (!writes) return Access::in;  // none of them starts before their node does: frozen needs no word of its own
    return reads_first ? Access::inout : Access::out;
  }
};

// The ranges that nodes of these plans touch, disjoint and by address. The nodes of one plan run in order, so bytes
// that are written first need not hold a value before. `may_not_run`: nor is it known that they are written.
std::vector<NestedUse> nested_uses(std::span<const Plan* const> plans, bool may_not_run);

}  // namespace nodewright
