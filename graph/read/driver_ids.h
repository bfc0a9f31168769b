// The driver's own numbers of graphs and nodes (CUDA 13.1): cuGraphDebugDotPrint, CUPTI and profilers name them so.
//
//   if (const auto ids = driver_ids(device, graph.node(attend.index))) label(ids->tools, "l3.attend");
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "runtime/device.h"

namespace nodewright {

// A node's. graph: of the graph that it is in; node: in that graph; tools: what tools call it, unique in the process.
struct DriverIds {
  uint32_t graph = 0, node = 0;
  uint64_t tools = 0;
  bool operator==(const DriverIds&) const = default;
};

// The ids of a node of `graph`, such as ExplicitGraph::node() and ReadNode::handle. Nothing where the driver is older
// than CUDA 13.1. Throws Error for a handle that the driver does not know, and for a node of another graph.
std::optional<DriverIds> driver_ids(const Device& device, CUgraph graph, CUgraphNode node);
// The id of an executable graph, such as ExplicitGraph::exec(); as above.
std::optional<uint32_t> driver_id(const Device& device, CUgraphExec exec);

}  // namespace nodewright
