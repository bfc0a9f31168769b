// A cuBLASLt product as a graph node. The library has no call that adds a node, so one direct call is captured and what
// it recorded is put into the graph: as a kernel node of our own, with the library's argument bytes and attributes, or
// as a child graph. With captured_run, the only file that captures.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "graph/graph_handle.h"
#include "runtime/content_hash.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// Where a node is added: the graph, and what it comes after.
struct NodePlace {
  CUgraph graph = nullptr;
  std::span<const CUgraphNode> before;
  std::span<const CUgraphEdgeData> types;
};

// The arguments of a kernel node of somebody else's, as the driver returns them.
struct KernelArguments {
  struct Parameter {
    size_t offset = 0, bytes = 0;
  };
  std::vector<std::byte> bytes;
  std::vector<Parameter> layout;  // empty: passed as one buffer
  std::string obstacle;           // why they cannot be read; empty when they can
};

// Of function, launch shape and argument bytes of a kernel node: equal for equal launches.
Digest kernel_fingerprint(const Driver& driver, CUgraphNode kernel, const std::string& name);

class RecordedProduct {
 public:
  // Captures one call of `plan` with these operands, on a stream of its own; nothing runs. `name`: of the node.
  RecordedProduct(const MatmulPlan& plan, const MatmulOperands& operands, std::string name);

  // Why the recording cannot be one kernel node; empty when it can.
  const std::string& obstacle() const { return obstacle_; }
  // The kernel's arguments as the library laid them out, an undocumented struct. Only without an obstacle.
  std::span<std::byte> arguments() { return arguments_.bytes; }
  // The recorded node, owned by this object. Only without an obstacle.
  CUgraphNode kernel() const { return kernel_; }

  // kernel_fingerprint of what add_kernel adds. Only without an obstacle.
  Digest fingerprint() const;
  // Adds the recorded kernel, with its attributes, as a node. Only without an obstacle.
  CUgraphNode add_kernel(const NodePlace& place) const;
  // Adds everything that was recorded, cloned, as one child graph node.
  CUgraphNode add_child(const NodePlace& place) const;

 private:
  void capture(const MatmulPlan& plan, const MatmulOperands& operands);
  void read_kernel();

  const Driver& driver_;
  std::string name_;
  GraphHandle graph_;
  std::string obstacle_;
  CUgraphNode kernel_ = nullptr;
  CUDA_KERNEL_NODE_PARAMS parameters_{};  // without arguments
  KernelArguments arguments_;
};

}  // namespace nodewright
