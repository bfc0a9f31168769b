// Collects nodes with typed arguments and turns their declared uses into a plan: edges are derived, never written down.
// Launches nothing; only graph() calls the driver.
//
//   GraphBuilder g(device, "decode.b8");
//   g.declare({"residual", view.address(), view.bytes(), "activation"}, {.live_in = true});
//   auto layer = g.scope("l0");
//   auto norm = g.launch("norm", k.rms_norm, {.x = residual, .gain = w.gain, .y = normed, .rows = 8});
//   Plan plan = std::move(g).finish(EdgePolicy::programmatic);
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/dump/name_table.h"
#include "graph/edges/edge_derivation.h"
#include "graph/edges/frozen_ranges.h"
#include "graph/hazards/hazard_tracker.h"
#include "graph/launch_arguments.h"
#include "graph/node.h"
#include "graph/product_operands.h"
#include "runtime/memory/live_buffers.h"

namespace nodewright {

class Event;
class ExplicitGraph;
class MatmulPlan;
class Stream;

// Whether a buffer is used outside the plan. live_in: it holds a value before the plan runs. live_out: it is read after
// the plan has run. peer: it may be memory of another device, which this plan's device reaches by peer access (a Team
// enables it; copies need none). Otherwise such memory is refused.
struct Live {
  bool live_in = false, live_out = false, peer = false;
};

// Extras of one launch.
template <class A>
struct LaunchOptions {
  std::optional<Traffic> traffic = {};  // default: the bytes of the uses
  std::vector<NodeId> after = {};       // orders that no buffer shows
  // The same struct with memory fields as wide as patches may ever make them; edges come from these ranges. Each must
  // contain the field's own range. Scalars are not looked at.
  std::optional<A> envelope = {};
  KernelAttributes attributes = {};
};

// `rows` rows of `bytes` bytes each, from rows that lie `from_pitch` bytes apart to rows that lie `to_pitch` apart.
struct CopyRows {
  uint64_t bytes = 0, rows = 1, to_pitch = 0, from_pitch = 0;
};

// `slices` slices of `rows` rows of `bytes` bytes: a box of a tensor of three dimensions. Rows lie to_pitch and
// from_pitch bytes apart, slices to_height and from_height rows.
struct CopyBox {
  uint64_t bytes = 0, rows = 1, slices = 1;
  uint64_t to_pitch = 0, to_height = 0, from_pitch = 0, from_height = 0;
};

// `rows` rows of `count` elements each, which begin `pitch` bytes apart.
struct FillRows {
  uint64_t count = 0, rows = 1, pitch = 0;
};

// How a child plan gets into the graph. moved: its kernels, copies and fills can be patched one by one, and it can be
// the child of one node only. cloned: the driver keeps a copy, patched as a whole (ExplicitGraph::patch_child).
enum class ChildOwnership : uint8_t { moved, cloned };

// The range of a pinned buffer, to be declared when a copy uses it.
NamedRange range_of(const PinnedBuffer& buffer, std::string kind);
NamedRange range_of(const DeviceBuffer& buffer, std::string kind);

// A node that allocates, and its memory. Pass views of it to later nodes of the plan, and of plans inside it; elsewhere
// their address is meaningless.
struct Allocation : NodeId {
  std::string name;        // of the buffer, with all its scopes
  uint64_t address = 0;    // planned, from kAllocationBase on
  uint64_t bytes = 0;      // of the memory
  size_t scope_chars = 0;  // of `name`: the scopes with their dots

  // The memory as elements of T, from byte 0.
  template <class T>
  View<T> view() const {
    return {reinterpret_cast<T*>(address), bytes / sizeof(T)};
  }
  // For plans inside this one, which declare it as any other buffer.
  NamedRange range() const { return {name, address, bytes, "allocation"}; }
};

// Every function may throw Error, with names and numbers, and then has added nothing. Not thread-safe; builders on
// several threads need no lock.
class GraphBuilder {
 public:
  // A plan called `name` for `device`, which must outlive it. `facts`: what dumps say of it.
  GraphBuilder(Device& device, std::string name, PlanFacts facts = {});
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // Makes room for `nodes` more nodes in one go. A hint: building is quicker, the plan the same.
  void reserve(size_t nodes);

  // Names a range that nodes may use. A DeviceBuffer or PinnedBuffer of which no part is declared needs no declaration:
  // when a node first uses it, the whole buffer is declared under its own name, live-out. Refused: a range that
  // overlaps another declared one, a name that is taken, and memory of another device without Live::peer. Declaring the
  // same range under the same name again adds the flags.
  void declare(NamedRange range, Live live = {});
  // The whole buffer, under its own name.
  void declare(const DeviceBuffer& buffer, Live live = {}, std::string kind = "activation") {
    declare(range_of(buffer, std::move(kind)), live);
  }
  void declare(const PinnedBuffer& buffer, Live live = {}, std::string kind = "activation") {
    declare(range_of(buffer, std::move(kind)), live);
  }

  // Keeps an object for as long as the plan, graphs of it and their launches live: a table that a host function reads,
  // a library's handle. Explicit and captured graphs hold it as a user object of the driver (cuGraphRetainUserObject),
  // so it stays with clones of the graph, with children, and until launches under way have ended; ExplicitGraph::update
  // lets go of those of the plan before. The last to let go may be a thread of the
  // driver, at any time after: the object's destructor must not call CUDA, as those of the library's own buffers,
  // events and streams do, which do not compile here. Refused: null, and a name that another object of the plan has.
  template <class T>
  void keep(std::string_view name, std::shared_ptr<T> object) {
    static_assert(!kCallsDriver<std::remove_cv_t<T>>,
                  "its destructor calls CUDA, which a thread of the driver may not");
    keep_object(name, std::move(object));
  }

  // Until the result is destroyed, node names start with `name` and a dot. Scopes nest; the outermost is the layer.
  class [[nodiscard]] Scope {
   public:
    // What scope() makes: the builder's prefix and its outermost part as they were.
    Scope(GraphBuilder& builder, size_t prefix_chars, uint32_t layer_chars)
        : builder_(builder), prefix_chars_(prefix_chars), layer_chars_(layer_chars) {}
    ~Scope() {
      builder_.prefix_.resize(prefix_chars_);
      builder_.layer_chars_ = layer_chars_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphBuilder& builder_;
    size_t prefix_chars_;  // before the scope was opened
    uint32_t layer_chars_;
  };
  Scope scope(std::string_view name);  // opens one

  // Adds a kernel node with a copy of `args`. Refused: a name that is taken; a memory field that is empty and not
  // Optional; a range outside every declared buffer, not aligned to its element, read before anything wrote it, or
  // overlapping another field's when either writes; a frozen range that a node writes; a shape or an attribute that the
  // device or the kernel does not allow.
  template <KernelArgs A>
  Node<A> launch(std::string_view name, const Kernel<A>& kernel, const std::type_identity_t<A>& args,
                 std::optional<Traffic> traffic = std::nullopt) {
    return Node<A>{
        add_kernel(name, kernel.loaded, kernel.shape, {}, argument_bytes(args), {}, fields_of<A>(), traffic, {})};
  }
  template <KernelArgs A>
  Node<A> launch(std::string_view name, const Kernel<A>& kernel, const std::type_identity_t<A>& args,
                 const LaunchOptions<std::type_identity_t<A>>& options) {
    return Node<A>{add_kernel(name, kernel.loaded, kernel.shape, options.attributes, argument_bytes(args),
                              options.envelope ? argument_bytes(*options.envelope) : std::span<const std::byte>(),
                              fields_of<A>(), options.traffic, options.after)};
  }

  // Adds a node of a kernel that takes any number and type of parameters (graph/launch_arguments.h says what an
  // argument may be). Edges around it are full unless the launch declares that the kernel waits. Refused, besides the
  // above: arguments whose number, size or alignment differs from the code's. An argument that does not say what the
  // kernel does with memory does not compile.
  template <class... P>
  ForeignNode<P...> launch(std::string_view name, const ForeignKernel& kernel, const ForeignLaunch& how,
                           const P&... arguments) {
    (check_argument<P>(), ...);
    using Block = ArgumentBlock<P...>;
    const Block block(arguments...);
    return {add_foreign_kernel(name, kernel.loaded(), how, block.bytes, Block::kFields, block.uses)};
  }
  template <class... P>
  ForeignNode<P...> launch(std::string_view name, const ForeignKernel& kernel, const LaunchShape& shape,
                           const P&... arguments) {
    return launch(name, kernel, ForeignLaunch{.shape = shape}, arguments...);
  }

  // Copies the first `bytes` of `from` over the first `bytes` of `to`. Not from host to host.
  CopyNode copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, uint64_t bytes,
                const std::vector<NodeId>& after = {});
  template <class T>
  CopyNode copy(std::string_view, const Weight<T>& to, const CopyEnd&, uint64_t,
                const std::vector<NodeId>& = {}) = delete;
  // A two-dimensional copy; rows may not overlap in memory.
  CopyNode copy_rows(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyRows& shape,
                     const std::vector<NodeId>& after = {});
  template <class T>
  CopyNode copy_rows(std::string_view, const Weight<T>& to, const CopyEnd&, const CopyRows&,
                     const std::vector<NodeId>& = {}) = delete;

  // A three-dimensional copy (CUDA_MEMCPY3D); rows and slices may not overlap in memory: a height is at least `rows`. A
  // box that rows at one distance describe, too, becomes a copy of rows.
  CopyNode copy_box(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyBox& box,
                    const std::vector<NodeId>& after = {});
  template <class T>
  CopyNode copy_box(std::string_view, const Weight<T>& to, const CopyEnd&, const CopyBox&,
                    const std::vector<NodeId>& = {}) = delete;

  // Sets every element of `view`. Elements of 1, 2 or 4 bytes take any value, others one whose bytes are all equal.
  template <class T>
  FillNode fill(std::string_view name, View<T> view, std::type_identity_t<T> value,
                const std::vector<NodeId>& after = {}) {
    return fill_rows(name, view, {.count = view.count}, value, after);
  }
  template <class T>
  FillNode fill(std::string_view name, const DeviceArray<T>& array, std::type_identity_t<T> value,
                const std::vector<NodeId>& after = {}) {
    return fill(name, array.view(), value, after);
  }
  // A two-dimensional fill, of rows from the first element of `to` on; rows may not overlap in memory, and the pitch is
  // a multiple of the element.
  template <class T>
  FillNode fill_rows(std::string_view name, View<T> to, const FillRows& shape, std::type_identity_t<T> value,
                     const std::vector<NodeId>& after = {}) {
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    return add_fill(name, to.address(), to.bytes(), shape, {bytes.data(), bytes.size()}, after);
  }

  // Device memory that exists from this node to its free() in every launch, for nodes of this plan and of plans inside
  // it: a declared buffer of kind "allocation", with undefined contents and the node's name. A later allocation may
  // reuse freed memory. Memory that is declared live-out (declare(allocation.range(), {.live_out = true})) stays
  // allocated until the next launch, and no node frees it: InstantiateOptions::auto_free_on_launch. Not for library
  // nodes and structs that hold pointers, which keep addresses of their own. Not in bodies and children.
  Allocation allocate(std::string_view name, uint64_t bytes, const std::vector<NodeId>& after = {});
  // Ends the memory, once, after all that use it: later uses are refused. finish() refuses a plan that does not free
  // all it allocates and does not declare live-out, and one that does both. The node is called "<allocation>.free".
  NodeId free(const Allocation& allocation, const std::vector<NodeId>& after = {});

  // Work that a library submits to a stream, as one node: cuBLAS, cuDNN, CUB, CUTLASS, NCCL. `uses`: all memory that
  // the work touches. `submit` is called with a stream: under capture once for each graph that is built of the plan,
  // and without it once for each eager run. It submits its work there and waits for nothing; make its handle, workspace
  // and device memory beforehand. The node owns the function and its captures. `stand_in` computes the same on the host
  // and runs in its place on the CPU driver, in every run; without one the plan can be dumped there, but not run. Full
  // edges only. Building a graph throws Error with the node when the call throws, cannot be captured, or submits
  // nothing.
  NodeId library(std::string_view name, const std::vector<DeclaredUse>& uses, std::function<void(CUstream)> submit,
                 std::function<void()> stand_in = {}, const std::vector<NodeId>& after = {});
  NodeId library(std::string_view name, const std::vector<DeclaredUse>& uses, LibraryCall call,
                 const std::vector<NodeId>& after = {});

  // A graph built elsewhere, by capture or by hand, as one node: a child graph with a copy of its nodes. `uses`: all
  // that they touch. Refused: a use that is missing or states a write as a read, as far as the copies, fills and values
  // of the graph show it (graph/read/read_graph.h); kernels do not. The graph still belongs to its owner and must
  // outlive the plan; later changes to it do not reach graphs that were built of the plan before. Not captured by
  // CapturedGraph. Building a graph throws Error with the node when there are nodes that a child graph cannot have:
  // conditional nodes, allocations and frees. This is the only function here that calls the driver, to read the graph.
  NodeId graph(std::string_view name, CUgraph graph, const std::vector<DeclaredUse>& uses,
               const std::vector<NodeId>& after = {});

  // A matrix product as a library node: of cuBLASLt, or of our reference kernel where the plan says so. Reads a, b, c
  // and bias, writes y and the workspace; without an operand c, beta adds to y. Refused: an operand that is missing,
  // too short, of another element type or not aligned as planned.
  NodeId product(std::string_view name, std::shared_ptr<const MatmulPlan> product, const ProductOperands& operands,
                 const std::vector<NodeId>& after = {});

  // Calls `function` on a thread of the driver, after what wrote the ranges it reads and before what reads the ranges
  // it writes (pinned memory). The node owns the function and what it holds. It must not call CUDA; what it throws is
  // reported by the next launch.
  NodeId host(std::string_view name, std::function<void()> function, const std::vector<DeclaredUse>& uses,
              const std::vector<NodeId>& after = {});

  // Does nothing, after all of `after`.
  NodeId empty(std::string_view name, const std::vector<NodeId>& after);

  // Records `event`, of the plan's device, once the ranges of `uses` (Access::in) hold what the plan has written there,
  // so that another stream may wait for it. The node keeps the CUevent, which must outlive the graph; the Event may
  // move.
  NodeId record_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                      const std::vector<NodeId>& after = {});
  // Waits for `event`, recorded by another stream before the launch, perhaps of another device. `uses` (Access::out)
  // are the ranges that the other stream wrote before it: later nodes of the plan that use them come after this one.
  NodeId wait_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                    const std::vector<NodeId>& after = {});

  // Waits until the first element of `at`, a word of device or pinned memory, compares with `value` as `until` says.
  // The host, another stream or another device writes the word. `uses` (Access::out): the ranges that this writer has
  // written before it.
  template <Word T>
  ValueNode wait_value(std::string_view name, const View<T>& at, Until until, std::type_identity_t<T> value,
                       const std::vector<DeclaredUse>& uses = {}, const std::vector<NodeId>& after = {}) {
    return values(name, {wait_until(at, until, value)}, uses, after);
  }
  // Writes the first element of `at` once the ranges of `uses` (Access::in) hold what the plan has written there.
  template <Word T>
  ValueNode write_value(std::string_view name, const View<T>& at, std::type_identity_t<T> value,
                        const std::vector<DeclaredUse>& uses = {}, const std::vector<NodeId>& after = {}) {
    return values(name, {write_to(at, value)}, uses, after);
  }
  // Up to 255 waits and writes, one after the other, as one node. The driver sees no order that a value makes: a wait
  // whose value never arrives never ends, and work that a value orders across streams should be ordered by an event,
  // too. Refused: operations that the device does not support. Not in bodies.
  ValueNode values(std::string_view name, const std::vector<ValueOperation>& operations,
                   const std::vector<DeclaredUse>& uses = {}, const std::vector<NodeId>& after = {});

  // Signals an external semaphore with `value` (binary ones take any), or waits until it is reached. The semaphore
  // still belongs to its owner and must outlive the graph; `uses` as for events. Not in bodies.
  NodeId signal_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                          const std::vector<DeclaredUse>& uses, const std::vector<NodeId>& after = {});
  NodeId wait_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                        const std::vector<DeclaredUse>& uses, const std::vector<NodeId>& after = {});

  // A plan as one node: it uses what the plan's nodes use, so the edges around it are derived as for any node. Refused:
  // a plan that holds conditional nodes (the driver takes them at the top level and in bodies only), or of another
  // device. Buffers it uses must be declared here too.
  ChildNode child(std::string_view name, Plan plan, ChildOwnership ownership = ChildOwnership::moved,
                  const std::vector<NodeId>& after = {});

  // A condition with `default_value`, set again at every launch if `reset_each_launch`. Otherwise the value is
  // undefined at the start of every launch, and the default means nothing: a node before the conditional one sets it.
  // On cpu:checked a launch that obeys an undefined value is an error.
  ConditionHandle condition(std::string_view name, uint32_t default_value, bool reset_each_launch = true);
  // Collects the nodes of a body. They may use every buffer declared so far; kernels, copies, fills, empty nodes,
  // children and conditionals only.
  using Body = std::function<void(GraphBuilder&)>;
  NodeId if_else(std::string_view name, ConditionHandle condition, const Body& then, const Body& otherwise = {});
  // Tests the condition before each round: if it is 0 at first, the body never runs. A node of the body sets it.
  NodeId while_loop(std::string_view name, ConditionHandle condition, const Body& body);
  NodeId switch_case(std::string_view name, ConditionHandle condition, const std::vector<Body>& bodies);

  size_t node_count() const { return plan_.nodes.size(); }  // nodes added so far
  NodeId node(std::string_view name) const;  // of that name, with all its scopes; Error where there is none
  const std::string& name() const { return plan_.name; }  // of the plan
  Device& device() const { return *plan_.device; }        // of the plan

  // The plan, with its edges, checked against missing_orders; bodies get the same policy. Ends the builder. Where a
  // loop lies in a conditional node, or such a node in a loop, all edges are serial, whatever the policy: there the
  // driver failed even with the conditional nodes in order (see loops_address in graph/node.h).
  Plan finish(EdgePolicy policy = EdgePolicy::programmatic) &&;
  // The graph of that plan (graph/graph_exec.h), built and instantiated.
  ExplicitGraph instantiate(EdgePolicy policy = EdgePolicy::programmatic) &&;

 private:
  friend class PlanReplay;  // graph/edit/plan_replay.h

  template <class T>
  static constexpr bool kCallsDriver = std::is_same_v<T, DeviceBuffer> || std::is_same_v<T, PinnedBuffer> ||
                                       std::is_same_v<T, Event> || std::is_same_v<T, Stream>;

  // A use before it is known which buffer it lies in.
  struct AddressedUse {
    std::string_view field;
    uint64_t address = 0, bytes = 0;
    Access access = Access::in;
    uint64_t align_bytes = 1;
    bool settled = false;
    PeerUse peer = PeerUse::none;
  };
  // `rows` rows of `bytes` bytes, `pitch` bytes apart: one end of a copy, the target of a fill.
  struct Rows {
    uint64_t bytes = 0, rows = 1, pitch = 0;
  };
  // The bodies of one conditional node, finished with the plan.
  struct PendingBodies {
    uint32_t node = 0;
    std::vector<std::unique_ptr<GraphBuilder>> bodies;
  };
  static constexpr uint32_t kNone = NameTable::kNone;

  // What the builder knows of a buffer beside the plan.
  struct BufferState {
    bool written = false;       // by a node
    bool frozen = false;        // a part, by a node
    bool unallocated = false;   // memory of a node that an edit has yet to add again
    uint32_t freed_by = kNone;  // the node
  };
  template <KernelArgs A>
  static std::span<const std::byte> argument_bytes(const A& args) {
    return std::as_bytes(std::span<const A, 1>(&args, 1));
  }

  // The builder of a body of `outer`'s node: knows its buffers, and that all of them hold values. Its plan declares
  // those that its nodes use.
  GraphBuilder(const GraphBuilder& outer, std::string name);

  PlanNode new_node(std::string_view name, NodeKind kind) const;
  NodeId add_kernel(std::string_view name, const LoadedKernel* kernel, const LaunchShape& shape,
                    const KernelAttributes& attributes, std::span<const std::byte> arguments,
                    std::span<const std::byte> envelope, std::span<const FieldInfo> fields,
                    const std::optional<Traffic>& traffic, std::span<const NodeId> after);
  NodeId add_foreign_kernel(std::string_view name, const LoadedKernel& kernel, const ForeignLaunch& how,
                            std::span<const std::byte> arguments, std::span<const FieldInfo> fields,
                            std::span<const ArgumentUse> uses);
  void keep_object(std::string_view name, std::shared_ptr<const void> object);
  // Refuses an address among the arguments that none of `uses` explains.
  void check_pointers(const PlanNode& node, std::span<const ArgumentUse> uses, bool foreign) const;
  void check_graph_uses(const PlanNode& node, const Plan& inside, std::span<const DeclaredUse> uses) const;
  PlanNode kernel_node(std::string_view name, const LoadedKernel& kernel, const LaunchShape& shape,
                       const KernelAttributes& attributes) const;
  // `bytes`: from `to` to the end of the view.
  FillNode add_fill(std::string_view name, uint64_t to, uint64_t bytes, const FillRows& shape,
                    std::span<const unsigned char> pattern, const std::vector<NodeId>& after);
  NodeId add_event(std::string_view name, NodeKind kind, const Event& event, const std::vector<DeclaredUse>& uses,
                   const std::vector<NodeId>& after);
  NodeId add_semaphore(std::string_view name, NodeKind kind, CUexternalSemaphore semaphore, uint64_t value,
                       const std::vector<DeclaredUse>& uses, const std::vector<NodeId>& after);
  void add_met_uses(const PlanNode& node, const std::vector<DeclaredUse>& uses, bool waits, bool announces,
                    std::vector<AddressedUse>& addressed) const;
  NodeId add_conditional(std::string_view name, ConditionalKind kind, ConditionHandle condition,
                         std::span<const Body> bodies);
  // Adds `node`, whose uses are `uses` and, for nested plans, what is in node.uses already.
  NodeId add(PlanNode&& node, std::span<const AddressedUse> uses, const std::optional<Traffic>& traffic,
             std::span<const NodeId> after);
  // Adds a node of another plan as it is there, without what is special to nodes with bodies.
  NodeId add_again(const Plan& from, const PlanNode& node, std::span<const NodeId> after);
  // Declares memory that a node of another plan allocates, so that new allocations lie elsewhere.
  void declare_unallocated(const Buffer& buffer);
  size_t condition_index(uint64_t address) const;  // in plan_.conditions; their number where there is none
  AddressedUse declared_use(const PlanNode& node, const DeclaredUse& use, size_t place) const;
  AddressedUse memory_use(const PlanNode& node, const FieldInfo& field, std::span<const std::byte> arguments) const;
  // The use of `count` elements at `address`.
  AddressedUse elements_use(const PlanNode& node, const ArgumentUse& use, uint64_t address, uint64_t count) const;
  void check_envelope(const PlanNode& node, const AddressedUse& use, const AddressedUse& envelope) const;
  void check_rows(const PlanNode& node, std::string_view field, const Rows& rows, uint64_t held_bytes) const;
  void check_overlaps(const PlanNode& node) const;
  void check_initialised(const PlanNode& node) const;
  void check_frozen(const PlanNode& node) const;
  void check_allocated(const PlanNode& node) const;
  void check_all_freed() const;
  void check_allowed_in_body(const PlanNode& node) const;
  void find_earlier(const PlanNode& node, std::span<const NodeId> after);
  void order_with_loops(const PlanNode& node);
  void note_exchange(PlanNode& node) const;
  Use locate(const PlanNode& node, const AddressedUse& use);
  bool declare_outer_buffer(uint64_t address, uint64_t bytes);
  bool declare_live_buffer(uint64_t address, uint64_t bytes);
  // Whose memory lies there, in words, where the driver knows it to be another device's; empty otherwise.
  std::string other_device_at(uint64_t address) const;
  void forget_buffers_from(size_t first);
  ByteRange address_range(const Use& use) const;
  const Buffer* buffer_named(std::string_view name) const;
  // A buffer that shares bytes with the range.
  const Buffer* overlapping(uint64_t address, uint64_t bytes) const;
  // The buffer that holds all bytes of the range, of this plan or of one around it.
  const Buffer* known_buffer(uint64_t address, uint64_t bytes) const;
  // The last buffer that starts at or below `address`; kNone when there is none.
  uint32_t buffer_below(uint64_t address) const;
  uint32_t node_named(std::string_view name) const;
  [[noreturn]] void refuse(const PlanNode& node, std::string detail, std::string advice) const;

  Plan plan_;
  uint64_t allocated_bytes_ = 0;  // addresses that allocate() has given out
  bool has_allocated_ = false;    // a buffer is memory of allocate(), of this builder or of one around it
  bool is_body_ = false;
  uint64_t loop_around_ = 0;             // of a loop's body: loops_address of the plan that the loop is in
  uint32_t last_loop_ = kNone;           // the node
  bool loops_nest_ = false;              // a loop in a conditional node, or one of those in a loop
  std::string prefix_;                   // of the scopes that are open, with their dots
  uint32_t layer_chars_ = 0;             // of prefix_: the outermost scope
  const GraphBuilder* outer_ = nullptr;  // of a body: the builder around it
  std::map<uint64_t, uint32_t> buffers_by_address_;
  std::vector<BufferState> buffer_states_;  // by index in plan_.buffers
  LiveBuffer last_live_;                    // that of the last range declared: the next often lies in it, too
  NameTable buffer_names_, node_names_;
  HazardTracker hazards_;
  FrozenRanges frozen_;
  std::vector<uint32_t> obeyed_by_;  // by index in plan_.conditions: the conditional node, or kNone
  Orders orders_;
  std::vector<PendingBodies> pending_bodies_;
  std::vector<uint32_t> also_after_;     // what every node that is added follows: set by an edit
  std::vector<AddressedUse> addressed_;  // scratch of add_kernel()
  std::vector<RequiredOrder> required_;  // scratch of find_earlier()
  std::vector<RangeUse> ranges_;         // scratch of find_earlier()
  std::vector<uint32_t> declared_;       // scratch of find_earlier()
};

}  // namespace nodewright
