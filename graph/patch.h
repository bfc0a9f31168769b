// Several changes to an instantiated graph, made together or not at all.
//
//   PatchSet patches(exec);
//   patches.set(attend, &PagedAttention::scale, 0.125f);
//   patches.shape(attend, launch_shape_1d(16, 128));
//   patches.enable(sample, false);
//   patches.apply();
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "runtime/event.h"

namespace nodewright {

// What the driver says of copies of rows (cuGraphExecMemcpyNodeSetParams in cuda.h): advice where it refuses one.
inline constexpr std::string_view kRowCopyRules =
    "the driver takes other parameters of a copy of one row, to be one of one row: build a graph of the other shape";

// Each function checks its arguments; where they are wrong it throws Error, naming the node, and changes nothing.
// Nothing reaches the driver before apply(). Nodes may lie in moved children and in bodies. A later change of the same
// thing replaces the earlier one. Not thread-safe, and the graph must outlive it.
class PatchSet {
 public:
  // Begins without changes.
  explicit PatchSet(ExplicitGraph& exec) : exec_(&exec) {}

  // One field of a kernel node; the rules of ExplicitGraph::patch.
  template <KernelArgs A, class F>
  void set(Node<A> node, F A::*field, const std::type_identity_t<F>& value) {
    set_field(node, fields_of<A>(), ExplicitGraph::offset_of(field), &value, sizeof(F));
  }

  // One argument of a foreign kernel; the rules of ExplicitGraph::patch.
  template <size_t kIndex, class... P>
  void set(ForeignNode<P...> node, const typename ForeignNode<P...>::template PatchAt<kIndex>& argument) {
    using Argument = typename ForeignNode<P...>::template Argument<kIndex>;
    const auto passed = Argument::passed(argument);
    set_argument(node, ArgumentBlock<P...>::kFields, kIndex, &passed, Argument::uses(argument));
  }
  template <FixedName kName, class... P>
  void set(ForeignNode<P...> node, const typename ForeignNode<P...>::template PatchOf<kName>& argument) {
    set<ForeignNode<P...>::template index_of<kName>()>(node, argument);
  }

  // Another kernel in the place of a node's, in its own shape; the rules of ExplicitGraph::patch.
  template <KernelArgs A>
  void kernel(Node<A> node, const Kernel<A>& kernel) {
    set_kernel(node, fields_of<A>(), ExplicitGraph::change_to(kernel), kernel.shape);
  }
  template <class... P>
  void kernel(ForeignNode<P...> node, const ForeignKernel& kernel, const LaunchShape& shape,
              bool waits_for_inputs = false) {
    set_kernel(node, ArgumentBlock<P...>::kFields, {&kernel.loaded(), waits_for_inputs}, shape);
  }

  // Grid, block and shared bytes of a kernel node, within the limits of kernel, device and the node's attributes. Its
  // cluster stays.
  void shape(NodeId node, const LaunchShape& shape);

  // The ends of a copy, each within the range it was built with; as many bytes as before or fewer. Between the same
  // kinds of memory, and in the same array. Refused: an end in memory that the plan allocates, and a copy of rows.
  void copy(CopyNode node, const CopyEnd& to, const CopyEnd& from, uint64_t bytes);
  template <class T>
  void copy(CopyNode, const Weight<T>& to, const CopyEnd&, uint64_t) = delete;

  // The ends and the shape of a copy of rows: each row lies within rows that the node was built with. The driver
  // decides: as cuda.h has it, copies of one row alone take other parameters (cuGraphExecMemcpyNodeSetParams), and then
  // apply() names the node and that rule. A graph of another shape of rows is built anew (replace()).
  void copy_rows(CopyNode node, const CopyEnd& to, const CopyEnd& from, const CopyRows& shape);
  template <class T>
  void copy_rows(CopyNode, const Weight<T>& to, const CopyEnd&, const CopyRows&) = delete;

  // What a host node calls. Launches under way call what they were made with; the graph keeps both. It uses what the
  // node was added with, and what it throws is reported as that node's.
  void host(NodeId node, std::function<void()> function);

  // The event that a node records or waits for, which must outlive the graph; the Event may move.
  void event(NodeId node, const Event& event);

  // The value that a fill writes; its range, its rows and its element size stay.
  void fill(FillNode node, uint32_t value);

  // The value that one operation of a values node waits for or writes.
  void value(ValueNode node, size_t operation, uint64_t value);

  // A disabled node does nothing, and the orders that lead through it still hold. Kernels, copies and fills only, and
  // no kernel with a programmatic in-edge, which could not keep those orders. Later readers of its outputs get the old
  // values. Disabling a fill takes device memory: as much as its rows span, or 4 bytes for a fill without rows.
  void enable(NodeId node, bool enabled);

  size_t size() const { return changes_.size(); }  // nodes with changes

  // Applies all, in order, to later launches, and empties the set (refused after an update of the graph); everything
  // that the set does not mention stays as it is at that time. When the driver refuses one, those before it are undone,
  // the set is kept, and Error names the node; if even that fails, the Error says so, and the graph must not be
  // launched again.
  void apply();

 private:
  // What is to differ from the node's state at the time of apply().
  struct Change {
    BuiltPlan* built = nullptr;
    uint32_t node = 0;
    struct FieldBytes {
      size_t offset = 0;
      std::vector<std::byte> bytes;
    };
    std::vector<FieldBytes> fields;
    std::optional<KernelChange> kernel;
    std::optional<LaunchShape> shape;
    std::optional<CopyParameters> copy;
    std::optional<uint32_t> fill;
    std::map<size_t, uint64_t> values;  // by operation
    std::shared_ptr<HostCall> host;
    std::optional<CUevent> event;
    std::optional<bool> enabled;

    const PlanNode& plan_node() const { return built->plan->nodes[node]; }
    bool sets_parameters() const {
      return !fields.empty() || kernel || shape || copy || fill || !values.empty() || host != nullptr || event;
    }
    // What the driver forbids where it refuses the change.
    std::string_view rules() const {
      if (kernel) return kKernelChangeRules;
      return copy && (copy->rows > 1 || plan_node().copy.rows > 1) ? kRowCopyRules : std::string_view();
    }
  };
  Change& change_of(NodeId node);
  const PlanNode& node_of(NodeId node, std::initializer_list<NodeKind> kinds, std::string_view what) const;
  CUresult apply(const Change& change, const BuiltPlan::NodeState& state) const;
  BuiltPlan::NodeState state_after(const Change& change) const;
  void set_field(NodeId node, std::span<const FieldInfo> fields, size_t offset, const void* value, size_t bytes);
  void set_argument(NodeId node, std::span<const FieldInfo> fields, size_t index, const void* value,
                    std::span<const ArgumentUse> uses);
  void set_bytes(NodeId node, const FieldInfo& field, const void* value);
  void set_kernel(NodeId node, std::span<const FieldInfo> fields, const KernelChange& kernel, const LaunchShape& shape);
  const LoadedKernel& kernel_of(NodeId node) const;
  void check_not_updated() const;

  ExplicitGraph* exec_;
  uint64_t updates_ = 0;                                             // of the graph, when the changes were made
  std::vector<Change> changes_;                                      // one a node
  std::map<std::pair<const BuiltPlan*, uint32_t>, size_t> indices_;  // in changes_, by plan and node
};

}  // namespace nodewright
