// Several changes to an instantiated graph, made together or not at all.
//
//   PatchSet patches(exec);
//   patches.set(attend, &PagedAttention::scale, 0.125f);
//   patches.shape(attend, launch_shape_1d(16, 128));
//   patches.enable(sample, false);
//   patches.apply();
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/graph_exec.h"

namespace nodewright {

// Each function checks what it is given and throws Error, naming the node, without having changed anything; nothing
// reaches the driver before apply(). Nodes may lie in moved children and in bodies. A later change of the same thing
// replaces the earlier one.
class PatchSet {
 public:
  explicit PatchSet(ExplicitGraph& exec) : exec_(&exec) {}

  // One field of a kernel node; the rules of ExplicitGraph::patch.
  template <KernelArgs A, class F>
  void set(Node<A> node, F A::*field, const std::type_identity_t<F>& value) {
    set_field(node, sizeof(A), ExplicitGraph::offset_of(field), &value, sizeof(F));
  }

  // Grid, block and shared bytes of a kernel node, within the limits of kernel, device and the node's attributes.
  void shape(NodeId node, const LaunchShape& shape);

  // The ends of a copy, each within the range it was built with; as many bytes as before or fewer. The shape of a copy
  // of rows stays. Between the same kinds of memory.
  void copy(CopyNode node, const CopyEnd& to, const CopyEnd& from, uint64_t bytes);

  // What a fill writes; where, and elements of which size, stays.
  void fill(FillNode node, uint32_t value);

  // A node that is not enabled does nothing, and the orders through it hold. Kernels, copies and fills only. Whoever
  // reads what it would have written gets what was there before.
  void enable(NodeId node, bool enabled);

  size_t size() const { return changes_.size(); }

  // Applies all, in order, to later launches, and empties the set. When the driver refuses one, those before it are
  // undone and Error names the node; if even that fails, the Error says so, and the graph must not be launched again.
  void apply();

 private:
  struct Change {
    BuiltPlan* built = nullptr;
    const PlanNode* node = nullptr;
    BuiltPlan::NodeState state;                // as it is to be
    bool parameters = false, enabled = false;  // which part of it
  };
  Change& change_of(NodeId node, std::initializer_list<NodeKind> kinds, std::string_view what);
  void set_field(NodeId node, size_t args_bytes, size_t offset, const void* value, size_t bytes);

  ExplicitGraph* exec_;
  std::vector<Change> changes_;  // one a node
};

}  // namespace nodewright
