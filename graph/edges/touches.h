// What the nodes of a plan touch, as addresses, those of plans inside it included: what the checks of hazard_check.h
// and plan_conflicts.cpp sweep over. Shares nothing with the tracker that derives edges.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// One use.
struct Touch {
  uint64_t begin = 0, end = 0;  // addresses
  Access access = Access::in;
  bool settled = false;   // perhaps read before the wait
  bool of_first = false;  // of the two plans that conflicts() compares
  uint32_t id = 0;        // node->id
  const PlanNode* node = nullptr;
  std::string_view field;
  const Buffer* buffer = nullptr;
};

// Appends the touches of the plan's nodes. What nodes inside a node touch is that node's own: the driver starts none of
// them before it, so that they read no earlier what they declare frozen or settled. `loop_around`: of a loop's body,
// loops_address of the plan that the loop is in, else 0.
void collect_touches(const Plan& plan, uint64_t loop_around, std::vector<Touch>& touches);

// By first address, then as they were.
void sort_touches(std::vector<Touch>& touches);
// The same, quicker, of touches of `plan`, of which no two buffers overlap.
void sort_touches(const Plan& plan, std::vector<Touch>& touches);

// The end of the touches from `first` on that overlap one another, directly or through others.
size_t end_of_overlap(std::span<const Touch> sorted, size_t first);

}  // namespace nodewright
