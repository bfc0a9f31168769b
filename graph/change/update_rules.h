// From one plan to another in an instantiated graph: which nodes change in what, and what the driver does not change in
// place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// What of a node is another in the later plan, as bits. memory: addresses that it touches, and how much there. scalars:
// its other arguments. function: what a host node calls. patches: it was patched or switched off, which the later plan
// ends.
enum class Changed : uint32_t {
  kernel = 1,
  shape = 2,
  scalars = 4,
  memory = 8,
  fill_value = 16,
  function = 32,
  event = 64,
  values = 128,
  semaphore = 256,
  library = 512,
  patches = 1024,
};

// One node that changes, in a plan of the graph or in one inside it.
struct NodeChange {
  std::string plan, node;  // names
  uint32_t id = 0;         // of the node in its plan
  uint32_t changed = 0;    // bits of Changed
  bool has(Changed what) const { return (changed & static_cast<uint32_t>(what)) != 0; }
};

// "l0.attend: kernel, memory"; of a plan inside another "part: l0.attend: scalars".
std::string describe(const NodeChange& change, const Plan& outermost);

// How an end of a copy node becomes another array, or memory: "'to' is array 'cube' in the graph and memory in the
// plan".
// "" where none does.
std::string array_change(const Plan& before, const PlanNode& was, const Plan& after, const PlanNode& is);

// Appends what changes of the nodes of one plan, without those inside them; `patched`, by id: had patches. Throws Error
// with the node, or the edge, and the rule for what an instantiated graph cannot become: nodes are paired by their
// order and name, and have the same kinds, attributes and edges; nodes that allocate or are conditional, and kernels
// that the device may update, have no update. What no plan shows the driver decides (cuGraphExecUpdate in cuda.h).
void find_changes(const Plan& before, const Plan& after, const std::vector<bool>& patched,
                  std::vector<NodeChange>& changes);

}  // namespace nodewright
