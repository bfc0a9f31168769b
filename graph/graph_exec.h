// The explicit run of a plan, the product: a CUDA graph whose nodes are added one by one with their edges, then
// instantiated. Captures nothing.
//
//   ExplicitGraph exec(plan);
//   exec.upload(stream);
//   exec.patch(attend, &PagedAttention::scale, 0.125f);
//   exec.launch(stream);
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "graph/graph_handle.h"
#include "graph/node.h"
#include "runtime/stream.h"

namespace nodewright {

class ExplicitGraph {
 public:
  // Adds and instantiates. Throws Error with the node that the driver refused, and its reason. Keeps the plan; the
  // kernels and buffers that it names must outlive the graph. Not thread-safe.
  explicit ExplicitGraph(Plan plan);

  // Moves the graph to the device, so that the first launch does not pay for it.
  void upload(const Stream& stream);
  // One run at a time.
  void launch(const Stream& stream) const;

  // Changes one field of one kernel node, for later launches. A scalar takes any value. A memory field must stay within
  // the range it was built with (or its envelope), else Error with the node, the field and both ranges: the edges were
  // derived from that range.
  template <KernelArgs A, class F>
  void patch(Node<A> node, F A::*field, const std::type_identity_t<F>& value) {
    A args;
    copy_arguments(node, &args, sizeof(A));
    args.*field = value;
    const auto offset = reinterpret_cast<const char*>(&(args.*field)) - reinterpret_cast<const char*>(&args);
    patch_field(node, static_cast<size_t>(offset), &(args.*field), sizeof(F));
  }

  struct Stats {
    size_t nodes = 0, full_edges = 0, programmatic_edges = 0;
    double add_ms = 0, instantiate_ms = 0, upload_ms = 0;
  };
  const Stats& stats() const { return stats_; }
  const Plan& plan() const { return plan_; }  // as built: patches do not show here
  CUgraph graph() const { return graph_.get(); }
  CUgraphNode node(uint32_t id) const { return nodes_.at(id); }

 private:
  void add_nodes();
  const PlanNode& kernel_node(NodeId node, size_t args_bytes) const;
  void copy_arguments(NodeId node, void* args, size_t bytes) const;
  void patch_field(NodeId node, size_t offset, const void* value, size_t bytes);
  void check_within_envelope(const PlanNode& node, const FieldInfo& field, const void* value) const;

  Plan plan_;
  const Driver* driver_;
  GraphHandle graph_;
  GraphExecHandle exec_;
  std::vector<CUgraphNode> nodes_;                 // by id; owned by graph_
  std::vector<std::vector<std::byte>> arguments_;  // by id: the argument structs as patched
  Stats stats_;
};

// What the driver holds, compared with the plan: node kinds, grid, block, shared bytes, argument bytes, copies, fills,
// and edges with their types. One line for each difference; empty when they are equal.
std::vector<std::string> read_back(const ExplicitGraph& exec);

}  // namespace nodewright
