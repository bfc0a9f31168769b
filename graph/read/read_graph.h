// A plan of a graph that was built elsewhere: captured by PyTorch or a library, or made by hand. To look at, to compare
// and to check; it does not run.
//
//   const Plan plan = read_graph(device, graph, {.name = "captured"});
//   std::cout << to_text(plan);
#pragma once

#include <cuda.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dump/plan_diff.h"
#include "graph/node.h"
#include "graph/timing/plan_timings.h"
#include "runtime/stream.h"

namespace nodewright {

// What a kernel does with memory whose address is in one of its arguments.
struct StatedUse {
  uint32_t argument = 0;       // its place
  uint64_t at = 0;             // where the address is in it: a multiple of 8 bytes, as in a struct
  Access access = Access::in;  // in, out or inout
  uint64_t bytes = 0;          // from the address on; 0: to the end of its allocation
};

// What is known of a kernel that another compiler has made.
struct StatedKernel {
  std::string kernel;           // its demangled name, whole or short; * stands for any characters
  std::vector<StatedUse> uses;  // other addresses in its arguments stay possible uses
  bool waits = false;           // as NodeOptions::waits_for_inputs
  std::string source = {};      // for errors: "uses.txt:3"
};

// A line for each kernel, and comments that begin with #:
//   blend: argument 0 reads 4096, argument 1 reads, argument 2 at 8 updates 4096, waits
//   void at::native::fill<*>(int, float*): argument 1 writes
// Throws Error (usage) with `source`, the line and what is wrong.
std::vector<StatedKernel> parse_uses(std::string_view text, const std::string& source);
std::vector<StatedKernel> read_uses(const std::filesystem::path& path);

// How a graph is read.
struct ReadOptions {
  std::string name = "graph";      // of the plan
  std::vector<StatedKernel> uses;  // the first that fits a kernel's name counts
};

// Every node of `graph`, in children and bodies too, with its parameters, in an order in which they may run: that of
// the driver's list where its edges allow. A node is called after its kernel, or its kind, and a number:
// "vectorized_elementwise_kernel.0", "memcpy.1". Nodes that repeat in order, as the layers of a network do, are layers
// of the plan, and are called after them: "block3.gemm.0". Kernels have their whole demangled names, and their
// arguments as the bytes of each parameter. Edges have the driver's types. What plans have no word for is a node of
// kind `other`, or an edge of type `other`, and is named (ReadNode::what). The bodies of a conditional node are read
// where the driver has cuGraphNodeGetParams (CUDA 13.2); elsewhere such a node is of kind `other`. The driver tells
// neither a condition's default nor what a host function does.
//
// Copies, fills and values nodes use the memory at their addresses: row by row in the allocations that the driver knows
// there, which become buffers ("device.0", "pinned.0", or the name of a DeviceBuffer). Every eight bytes of a kernel's
// argument that are an address in an allocation are a *possible use* of it (ReadNode::possible): the plan declares and
// shows the buffer, and orders nothing by it. What options.uses state of a kernel become uses in their place; an
// argument that holds null has none. Refused: an argument that the kernel does not have, an address of no allocation
// where no bytes are stated, and bytes beyond it. Edges have the hazards between the uses of their two nodes as
// reasons, and missing_orders (graph/hazard_check.h) finds uses that no path of edges orders.
//
// The graph still belongs to its owner; the plan refers to nothing of it but handles (ReadNode::handle), kernels and
// events. Throws Error with the node and what the driver said. O(nodes log nodes + edges).
Plan read_graph(Device& device, CUgraph graph, const ReadOptions& options = {});

// The plan that a dump of to_json (graph/dump/graph_dump.h) shows, to be shown again, compared and checked: its buffers
// lie at addresses of no meaning, and it has no device and does not run. Throws Error (usage) with the source and the
// entry that is missing or means nothing.
Plan plan_of(const DumpText& dump);

// The full edges of a plan that its uses allow to be programmatic: from a kernel to a kernel that waits for its inputs,
// on a device of compute capability 9.0 or later. Indices into Plan::edges.
std::vector<uint32_t> edges_to_relax(const Plan& plan);

// A plan of a graph and the times of its nodes, as graph/timing/node_timer.h has them: every node is bracketed. The
// graph is copied, stamp kernels are put before and after each node of the copy, and both are launched in turns on
// `stream`: its memory holds what some number of launches leave. The nodes of the plan have no handles. Throws Error
// for a graph that allocates memory or has a conditional node, which the driver does not copy.
struct TimedGraph {
  Plan plan;            // as read_graph makes it
  PlanTimings timings;  // of its nodes
};
TimedGraph time_graph(Device& device, CUgraph graph, KernelCache& kernels, const Stream& stream,
                      const ReadOptions& options = {}, const NodeTimerOptions& how = {});

// What missing_orders and edges_to_relax find, a line each: "missing: ...", "could be programmatic: a -> b".
std::string order_report(const Plan& plan);

}  // namespace nodewright
