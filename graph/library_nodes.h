// A cuBLASLt product as a graph node. The library has no call that adds a node, so one direct call is captured and what
// it recorded is put into the graph: as a kernel node of our own, with the library's argument bytes and attributes, or
// as a child graph. With captured_run, the only file that captures.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "graph/graph_handle.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

// Where a node is added: the graph, and what it comes after.
struct NodePlace {
  CUgraph graph = nullptr;
  std::span<const CUgraphNode> before;
  std::span<const CUgraphEdgeData> types;
};

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

  // Adds the recorded kernel, with its attributes, as a node. Only without an obstacle.
  CUgraphNode add_kernel(const NodePlace& place) const;
  // Whether `held`, a kernel node of any graph, has the recorded kernel, shape and arguments. Only without an obstacle.
  bool matches(CUgraphNode held) const;
  // Adds everything that was recorded, cloned, as one child graph node.
  CUgraphNode add_child(const NodePlace& place) const;

 private:
  struct Parameter {
    size_t offset = 0, bytes = 0;
    bool operator==(const Parameter&) const = default;
  };
  struct Arguments {
    std::vector<std::byte> bytes;
    std::vector<Parameter> layout;  // empty: passed as one buffer
    std::string obstacle;
    bool operator==(const Arguments&) const = default;
  };

  void capture(const MatmulPlan& plan, const MatmulOperands& operands);
  void read_kernel();
  Arguments arguments_of(const CUDA_KERNEL_NODE_PARAMS& kernel) const;

  const Driver& driver_;
  std::string name_;
  GraphHandle graph_;
  std::string obstacle_;
  CUgraphNode kernel_ = nullptr;
  CUDA_KERNEL_NODE_PARAMS parameters_{};  // without arguments
  Arguments arguments_;
};

}  // namespace nodewright
