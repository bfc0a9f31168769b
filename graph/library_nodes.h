// A cuBLASLt product as a graph node. The library has no call that adds a node, so one direct call is captured and what
// it recorded is put into the graph: as a kernel node of our own, with the library's argument bytes and attributes, or
// as a child graph. With captured_run, the only file that captures.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "graph/graph_handle.h"
#include "graph/product_form.h"
#include "runtime/matmul_plan.h"
#include "runtime/stream.h"

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

// What the driver holds for a kernel node.
KernelLaunch kernel_launch(const Driver& driver, CUgraphNode kernel, const std::string& name);

class RecordedProduct {
 public:
  // Captures one call of `plan` with these operands on `stream`, where nothing else is captured; nothing runs. `name`:
  // of the node.
  RecordedProduct(const MatmulPlan& plan, const MatmulOperands& operands, std::string name, const Stream& stream);

  // Why the recording cannot be one kernel node; empty when it can.
  const std::string& obstacle() const { return obstacle_; }
  // The kernel's arguments as the library laid them out, an undocumented struct. Only without an obstacle.
  std::span<std::byte> arguments() { return arguments_.bytes; }
  // The recorded node, owned by this object. Only without an obstacle.
  CUgraphNode kernel() const { return kernel_; }

  // Finds out where the operands lie among the arguments, by another recording of the same plan with other operands:
  // every difference between the two must be an operand's address.
  void compare(const RecordedProduct& other);
  // Makes this the recording for other operands, without a call of the library, if that is known to be the same kernel
  // with other addresses: each operand that changes differed between the recordings that were compared, and by whole
  // multiples of 256 bytes, so that no alignment changes. Else false, and nothing has changed.
  bool move_to(const MatmulOperands& operands);

  // kernel_launch of what add_kernel adds. Only without an obstacle.
  KernelLaunch launch() const;
  // Adds the recorded kernel, with its attributes, as the node `name`. Only without an obstacle.
  CUgraphNode add_kernel(const NodePlace& place, const std::string& name) const;
  // Adds everything that was recorded, cloned, as one child graph node.
  CUgraphNode add_child(const NodePlace& place) const;

 private:
  // Where the address of an operand lies: bytes from the start of the arguments.
  struct Place {
    size_t offset = 0, operand = 0;  // operand: index in kOperands
  };
  static constexpr std::array kOperands{&MatmulOperands::a,    &MatmulOperands::b, &MatmulOperands::c,
                                        &MatmulOperands::bias, &MatmulOperands::y, &MatmulOperands::workspace};

  void capture(const MatmulPlan& plan, const Stream& stream);
  void read_kernel();
  bool launches_as(const RecordedProduct& other) const;

  const Driver& driver_;
  std::string name_;
  MatmulOperands operands_;
  GraphHandle graph_;
  std::string obstacle_;
  CUgraphNode kernel_ = nullptr;
  CUDA_KERNEL_NODE_PARAMS parameters_{};  // without arguments
  KernelArguments arguments_;
  std::vector<Place> places_;
  std::array<bool, kOperands.size()> may_move_{};
};

}  // namespace nodewright
