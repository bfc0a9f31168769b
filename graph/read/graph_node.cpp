// GraphBuilder::graph: a graph that was built elsewhere as a node, whose stated uses are held against what can be read
// of it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "graph/builder_state.h"
#include "graph/nodes/graph_handle.h"
#include "graph/nodes/library_nodes.h"
#include "graph/read/read_graph.h"
#include "graph/read/read_memory.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// Where the bytes from `begin` on that `uses` cover end; `end` where all are. Only uses that write count if `written`.
uint64_t covered_to(uint64_t begin, uint64_t end, std::span<const DeclaredUse> uses, bool written) {
  for (bool grew = true; grew && begin < end;) {
    grew = false;
    for (const DeclaredUse& use : uses) {
      if ((written && !writes(use.access)) || begin - use.range.address >= use.range.bytes) continue;
      begin = use.range.address + use.range.bytes;
      grew = true;
    }
  }
  return std::min(begin, end);
}

}  // namespace

NodeId GraphBuilder::graph(std::string_view name, CUgraph graph, const std::vector<DeclaredUse>& uses,
                           const NodeOptions& options) {
  if (graph == nullptr)
    state_->refuse(state_->new_node(name, NodeKind::library), "it has no graph",
                   "pass the graph that the node is to be a copy of");
  const ContextGuard current(*state_->plan_.device);
  state_->check_graph_uses(state_->new_node(name, NodeKind::library),
                           read_graph(*state_->plan_.device, graph, {.name = std::string(name)}), uses);
  std::string what = "graph of " + names_of_nodes(state_->plan_.device->driver(), graph, name);
  const auto submit = [&driver = state_->plan_.device->driver(), graph, name = std::string(name),
                       exec = std::make_shared<std::optional<GraphExecHandle>>()](CUstream stream) {
    if (!*exec) exec->emplace(nodewright::instantiate(driver, graph, name, [&](CUgraphNode) { return name; }));
    driver.check(driver.cuGraphLaunch((*exec)->get(), stream), "cuGraphLaunch", "launch the graph of node", name);
  };
  return library(name, uses, {.submit = submit, .on_cpu_driver = true, .graph = graph, .what = std::move(what)},
                 options);
}

// Kernels hide what they touch; copies, fills and values do not.
void GraphBuilder::State::check_graph_uses(const PlanNode& node, const Plan& inside,
                                           std::span<const DeclaredUse> uses) const {
  for (const PlanNode& inner : inside.nodes) {
    for (const auto& body : inner.bodies) check_graph_uses(node, *body, uses);
    if (!inner.bodies.empty()) continue;
    for (const Use& use : inner.uses) {
      const NamedRange& memory = inside.buffers[use.buffer].range;
      const uint64_t begin = memory.address + use.offset, end = begin + use.bytes;
      const Buffer* declared = known_buffer(begin, 1);
      // Pageable memory of the host, whose address a capture keeps.
      if (declared == nullptr && memory.kind == kUnknownMemory) continue;
      const uint64_t first = covered_to(begin, end, uses, writes(use.access));
      if (first == end) continue;
      const NamedRange& named = declared == nullptr ? memory : declared->range;
      const bool read = covered_to(first, end, uses, false) != first;
      refuse(node,
             fmt::format("node '{}' of the graph {} {}[{},{}), which {}", inner.name,
                         writes(use.access) ? "writes" : "reads", named.name, first - named.address,
                         end - named.address, read ? "is stated to be read alone" : "lies in none of the stated uses"),
             read ? "state it as Access::out or Access::inout" : "add the range to the uses");
    }
  }
}

}  // namespace nodewright
