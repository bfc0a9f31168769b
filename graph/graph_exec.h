// The explicit run of a plan, for which this library exists: a CUDA graph whose nodes are added one by one with their
// edges, then instantiated. Only calls of library nodes are captured.
//
//   ExplicitGraph exec(plan);
//   exec.upload(stream);
//   exec.patch(attend, &PagedAttention::scale, 0.125f);
//   exec.launch(stream);
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/change/kernel_change.h"
#include "graph/change/update_rules.h"
#include "graph/edges/allocated_memory.h"
#include "graph/exec_budget.h"
#include "graph/launch_arguments.h"
#include "graph/node.h"
#include "graph/nodes/graph_handle.h"
#include "graph/nodes/host_call.h"
#include "graph/nodes/instantiate_rules.h"
#include "graph/nodes/kept_objects.h"
#include "graph/nodes/left_memory.h"
#include "graph/nodes/library_nodes.h"
#include "graph/run/buffer_watch.h"
#include "runtime/context_guard.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// A plan inside an explicit graph: the graph's own, a child's, a body's.
struct BuiltPlan {
  // A node's state after patches; the first patch makes it.
  struct NodeState {
    std::vector<std::byte> arguments;      // with the driver's condition handles
    const LoadedKernel* kernel = nullptr;  // of a kernel
    bool waits_for_inputs = false;         // as PlanNode's
    LaunchShape shape;                     // of a kernel
    CopyParameters copy;                   // of a copy
    FillParameters fill;                   // of a fill
    std::vector<ValueOperation> values;    // of a values node
    std::shared_ptr<HostCall> host;        // of a host node
    CUevent event = nullptr;               // of an event node
    bool enabled = true;                   // false: the node does nothing
    bool was_off = false;                  // enabled was false at a time
  };

  std::shared_ptr<const Plan> plan;
  uint64_t id = 0;          // Plan::id of the plan that the graph was built of, or updated to; patch_child keeps it
  uint64_t first_id = 0;    // of the plan that an updated graph was built of: its handles stay valid
  CUgraph graph = nullptr;  // owned by the ExplicitGraph, or by the node that the plan is in
  std::vector<CUgraphNode> nodes;                  // by id; empty for a cloned child, whose nodes the driver copied
  std::vector<CUgraphNode> exec_nodes;             // of an updated graph: those that it was instantiated of, as `nodes`
  std::vector<std::unique_ptr<NodeState>> states;  // by id; null: as built
  std::map<uint32_t, BuiltLibrary> libraries;      // by id

  // The node that changes of the executable graph name.
  CUgraphNode handle(uint32_t node) const { return exec_nodes.empty() ? nodes[node] : exec_nodes[node]; }
  bool is_of(uint64_t plan_id) const { return plan_id == id || (plan_id == first_id && first_id != 0); }
};

// A graph's plan, then those inside it.
using BuiltPlans = std::vector<std::unique_ptr<BuiltPlan>>;

// An instantiated graph of a plan. Not thread-safe: one thread at a time builds, patches, launches and destroys it.
class ExplicitGraph {
 public:
  // Adds and instantiates. Throws Error with the node that the driver refused, and its reason. Calls each library node
  // of the plan once, under capture: nothing runs. Keeps the plan; the kernels, buffers and events that it names must
  // outlive the graph. Not thread-safe. `budget` and `preferred`: as in InstantiateOptions.
  explicit ExplicitGraph(Plan plan, GraphBudget* budget = nullptr, LibraryForm preferred = LibraryForm::kernel)
      : ExplicitGraph(std::move(plan), InstantiateOptions{.budget = budget, .library_form = preferred}) {}
  // The same, with what the driver is to do at each launch and who may launch: what a plan forbids is refused before
  // the driver is called, with the node. Memory that
  // the last launch has left allocated is freed by the destructor, which waits for the device.
  ExplicitGraph(Plan plan, const InstantiateOptions& options);

  // Moves the graph to the device, so that the first launch does not pay for it. Needed before a launch where the
  // device may update a node (KernelAttributes::device_updatable) that is new or was patched.
  void upload(const Stream& stream);
  // One run at a time, on a stream of the plan's device. Throws Error with what a host node threw in an earlier run, or
  // when a buffer that the plan was built over has been freed. The graph may be destroyed while it runs; with host
  // nodes, and with kernels of libraries, that waits for the device.
  void launch(const Stream& stream);
  // One run on a stream of the graph's own; returns when it has ended. Throws Error as launch() does, and with what a
  // kernel did wrong.
  void run();

  // Changes one field of one kernel node, for later launches; the node may lie in a moved child or in a body. A scalar
  // takes any value. A memory field must stay within the range it was built with (or its envelope), else Error with the
  // node, the field and both ranges: the edges were derived from that range. Conditions cannot be patched. For several
  // changes at once, and for shapes, copies, fills and switching nodes off, see graph/patch.h.
  template <KernelArgs A, class F>
  void patch(Node<A> node, F A::*field, const std::type_identity_t<F>& value) {
    patch_field(node, fields_of<A>(), offset_of(field), &value, sizeof(F));
  }

  // The same of an argument of a foreign kernel, by its place or its name: patch<1>(node, view),
  // patch<"a">(node, 2.0f). A memory argument takes a view within the range it was built with (MemoryArgument::within);
  // a struct with_uses, whose uses stay within theirs.
  template <size_t kIndex, class... P>
  void patch(ForeignNode<P...> node, const typename ForeignNode<P...>::template PatchAt<kIndex>& argument) {
    using Argument = typename ForeignNode<P...>::template Argument<kIndex>;
    const auto passed = Argument::passed(argument);
    patch_argument(node, ArgumentBlock<P...>::kFields, kIndex, &passed, Argument::uses(argument));
  }
  template <FixedName kName, class... P>
  void patch(ForeignNode<P...> node, const typename ForeignNode<P...>::template PatchOf<kName>& argument) {
    patch<ForeignNode<P...>::template index_of<kName>()>(node, argument);
  }

  // Puts another kernel in the place of a node's, in its own shape, for later launches: it takes the same arguments,
  // which stay as they are, and so do the node's attributes, its uses and its edges. Error with the node and the rule
  // where that cannot be: a kernel that does not wait after a programmatic edge, one that the node's attributes or the
  // device do not allow, a node of an exchange, and what the driver refuses (kKernelChangeRules). The kernel must
  // outlive the graph.
  template <KernelArgs A>
  void patch(Node<A> node, const Kernel<A>& kernel) {
    patch_kernel(node, fields_of<A>(), change_to(kernel), kernel.shape);
  }
  // `waits_for_inputs`: as NodeOptions says it.
  template <class... P>
  void patch(ForeignNode<P...> node, const ForeignKernel& kernel, const LaunchShape& shape,
             bool waits_for_inputs = false) {
    patch_kernel(node, ArgumentBlock<P...>::kFields, {&kernel.loaded(), waits_for_inputs}, shape);
  }

  // Replaces the plan of a child, moved or cloned, by one that has the same nodes, kernels, attributes, ranges and
  // edges under the same name, and other scalars, shapes or functions. Earlier patches inside the child are lost.
  void patch_child(ChildNode node, Plan plan);

  // Makes this the graph of another plan, for later launches, without instantiating anew, by cuGraphExecUpdate: from
  // the CUgraph that it has, where kernels alone change, else from one that is built for it. Memory, arguments,
  // kernels, shapes, functions, events and values may be others. Nodes are paired by order and name, and their kinds,
  // attributes and edges stay. Earlier patches end, and nodes that were switched off are on. Returns the nodes that
  // changed, and in what (describe(NodeChange)); diff_plans says from what to what. Throws Error with the node or the
  // edge that stops it, and the rule: then the graph runs as before.
  //
  // Later patches go by the ranges of the new plan; handles of its builder and of the first plan's name the same nodes.
  // The budget's share stays. Where a graph is built, calls the libraries of the plan once, under capture.
  // O(nodes).
  std::vector<NodeChange> update(Plan plan);

  // Counts nodes, full_edges and programmatic_edges of all plans inside, and library nodes by their form
  // (library_kernels, library_graphs). add_ms, instantiate_ms and upload_ms are times of the host.
  struct Stats {
    size_t nodes = 0, full_edges = 0, programmatic_edges = 0;
    size_t library_kernels = 0, library_graphs = 0;
    double add_ms = 0, instantiate_ms = 0, upload_ms = 0;
  };
  const Stats& stats() const { return stats_; }  // of building
  const Plan& plan() const { return *plan_; }    // as built or updated: patches do not show here
  // The driver's handles, which live as long as this; do not destroy them. A launch of exec() by the caller does not
  // report what a host node threw or that a buffer was freed, and the destructor does not wait for it. Patches,
  // patch_child and read_back do not see what the caller changes in either handle. graph() may be read, cloned, and
  // given to another graph as a child; its nodes have the names and order of the plan (node()).
  CUgraph graph() const { return graph_.get(); }
  CUgraphExec exec() const { return exec_.get(); }
  CUgraphNode node(uint32_t id) const { return built_[0]->nodes.at(id); }
  // The graph's plan, then those inside it, outer before inner.
  const BuiltPlans& built_plans() const { return built_; }
  // The handle through which kernels update the node, which has KernelAttributes::device_updatable. Lives as long as
  // this. Throws Error for a node without that attribute.
  CUgraphDeviceNode device_node(NodeId node) const;
  // What a library node of the plan, or of one inside it, is in the graph.
  LibraryForm library_form(NodeId node) const;
  // The driver's handle of a condition of the plan or of one inside it.
  CUgraphConditionalHandle condition(uint64_t address) const { return conditions_.at(address); }
  const InstantiateOptions& options() const { return options_; }  // as built; what it points to may be gone
  // Where the memory lies that nodes of the plan allocate: the same in every launch, and valid only during one, or,
  // where the plan leaves it allocated, until the next launch.
  const AllocatedMemory& memory() const { return memory_; }

 private:
  friend class PatchSet;

  template <KernelArgs A, class F>
  static size_t offset_of(F A::*field) {
    static const A probe{};
    return static_cast<size_t>(reinterpret_cast<const char*>(&(probe.*field)) - reinterpret_cast<const char*>(&probe));
  }

  template <KernelArgs A>
  static KernelChange change_to(const Kernel<A>& kernel) {
    return {kernel.loaded, kernel.loaded != nullptr && kernel.loaded->waits_for_inputs};
  }

  ContextGuard guard_for(const Stream& stream) const;
  void add_nodes(const std::shared_ptr<const Plan>& plan, CUgraph graph);
  CUgraphNode add_node(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                       std::span<const CUgraphEdgeData> types);
  CUgraphNode add_library_node(BuiltPlan& built, const PlanNode& node, std::span<const CUgraphNode> before,
                               std::span<const CUgraphEdgeData> types);
  CUgraphNode add_child(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                        std::span<const CUgraphEdgeData> types);
  CUgraphNode add_conditional(const PlanNode& node, CUgraph graph, std::span<const CUgraphNode> before,
                              std::span<const CUgraphEdgeData> types);
  // The node's arguments with the driver's handles of conditions and the addresses of memory.
  std::vector<std::byte> placed_arguments(const PlanNode& node) const;
  void find_all_changes(size_t& index, const Plan& after, std::vector<NodeChange>& changes) const;
  void refuse_update_of_switched_nodes() const;
  void update_exec(CUgraph graph, const Plan& next);
  void update_kernels(const std::shared_ptr<const Plan>& next, const std::vector<NodeChange>& changes);
  void update_by_new_graph(const std::shared_ptr<const Plan>& next);
  void set_attributes(const PlanNode& node, CUgraphNode added) const;
  std::string name_of(CUgraphNode node) const;

  // Patching (patch.cpp).
  BuiltPlan& built_plan_of(NodeId node) const;
  void note_patched(const PlanNode& node) {
    if (node.attributes.device_updatable) needs_upload_ = &node;
  }
  static BuiltPlan::NodeState& state_of(BuiltPlan& built, const PlanNode& node, const ExplicitGraph& exec);
  void patch_field(NodeId node, std::span<const FieldInfo> fields, size_t offset, const void* value, size_t bytes);
  void patch_argument(NodeId node, std::span<const FieldInfo> fields, size_t index, const void* value,
                      std::span<const ArgumentUse> uses);
  void patch_kernel(NodeId node, std::span<const FieldInfo> fields, const KernelChange& kernel,
                    const LaunchShape& shape);
  void set_argument_bytes(BuiltPlan& built, const PlanNode& node, const FieldInfo& field, const void* value);

  std::shared_ptr<const Plan> plan_;
  GraphBudget::Share share_;
  BufferWatch buffers_;
  const Driver* driver_;
  GraphHandle graph_;         // of plan_
  GraphHandle instantiated_;  // of an updated graph: what exec_ was made from, whose nodes patches name
  GraphExecHandle exec_;
  uint64_t updates_ = 0;
  BuiltPlans built_;  // the first is plan_'s
  std::map<uint64_t, CUgraphConditionalHandle> conditions_;
  AllocatedMemory memory_;
  LeftMemory left_;
  InstantiateOptions options_;
  std::optional<Stream> library_stream_;  // to capture on, while nodes are added
  std::optional<Stream> own_stream_;      // of run(), from its first call on
  HostCalls host_calls_;
  KeptObjects kept_;
  bool inside_clone_ = false;               // while nodes are added: of a child that the driver will copy
  const PlanNode* needs_upload_ = nullptr;  // a node that the device may update, new or patched since the last upload
  std::vector<DeviceBuffer> spares_;        // where fills that are switched off write; the last is the largest
  Stats stats_;
};

// Destroys `exec`, returns its memory, and only then builds `plan` in its place: two graphs never hold memory at once.
// Not while `exec` runs. When building fails, `exec` is empty and the Error says why.
void replace(std::unique_ptr<ExplicitGraph>& exec, Plan plan, GraphBudget* budget = nullptr);

// The plan with what patches have made of its nodes since, in children and bodies too: kernels, shapes, arguments,
// copies, fills, values, functions, events. To be dumped, or timed as the graph runs now. Throws Error naming a node
// that is switched off, which no plan can say.
Plan plan_as_patched(const ExplicitGraph& exec);

// What the driver holds, compared with the plan as it was built: node kinds, grid, block, shared bytes, attributes,
// argument bytes, copies, fills, functions, events, memory, values, semaphores, and edges with their types, in children
// and bodies too; of the executable graph only its instantiation flags, without USE_NODE_PRIORITY, since the driver
// reports no more. One line for each difference; empty when they are equal.
//
// Nor does the driver report which node of a cloned child was made from which: cuGraphNodeFindInClone accepts only
// clones that cuGraphClone made. There each of the plan's nodes, in order, is compared with the first of the driver's
// remaining nodes that equals it in all of the above and in its in-edges or, where none does, with the one that differs
// least. An empty result still means that both graphs are the same. Two nodes that differ only in their successors may
// be reported where the driver lists them in another order than that of adding; and a clone with more or fewer nodes is
// reported as such, without what else differs.
std::vector<std::string> read_back(const ExplicitGraph& exec);

}  // namespace nodewright
