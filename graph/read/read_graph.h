// A plan of a graph that was built elsewhere: captured by PyTorch or a library, or made by hand. To look at, to compare
// and to check; it does not run.
//
//   const Plan plan = read_graph(device, graph, {.name = "captured"});
//   std::cout << to_text(plan);
#pragma once

#include <cuda.h>

#include <string>

#include "graph/node.h"

namespace nodewright {

// How a graph is read.
struct ReadOptions {
  std::string name = "graph";  // of the plan
};

// Every node of `graph`, in children and bodies too, with its parameters, in an order in which they may run: that of
// the driver's list where its edges allow. A node is called after its kernel, or its kind, and a number:
// "vectorized_elementwise_kernel.0", "memcpy.1". Kernels have their whole demangled names, and their arguments as the
// bytes of each parameter. Edges have the driver's types. What plans have no word for is a node of kind `other`, or an
// edge of type `other`, and is named (ReadNode::what). The bodies of a conditional node are read where the driver has
// cuGraphNodeGetParams (CUDA 13.2); elsewhere such a node is of kind `other`. The driver tells neither a condition's
// default nor what a host function does.
//
// The graph still belongs to its owner; the plan refers to nothing of it but handles (ReadNode::handle), kernels and
// events. Throws Error with the node and what the driver said. O(nodes log nodes + edges).
Plan read_graph(Device& device, CUgraph graph, const ReadOptions& options = {});

}  // namespace nodewright
