// Collects nodes with typed arguments and turns their declared uses into a plan: edges are derived, never written down.
// Launches nothing; only graph(), declare_array() and instantiate() call the driver.
//
//   GraphBuilder g(device, "decode.b8");
//   g.declare({"residual", view.address(), view.bytes(), "activation"}, {.live_in = true});
//   auto layer = g.scope("l0");
//   auto norm = g.launch("norm", k.rms_norm, {.x = residual, .gain = w.gain, .y = normed, .rows = 8});
//   Plan plan = std::move(g).finish(EdgePolicy::programmatic);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graph/launch_arguments.h"
#include "graph/node.h"
#include "graph/product_operands.h"

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

// The argument struct of a launch with memory fields as wide as patches may ever make them: edges come from these
// ranges. Each contains the field's own range. Scalars are not looked at. An argument of a foreign kernel says within()
// instead.
struct Envelope {
  std::vector<std::byte> bytes;       // of the struct; empty: no envelope
  std::span<const FieldInfo> fields;  // of its type; static

  Envelope() = default;
  // From a struct of the launch's type.
  template <KernelArgs A>
  Envelope(const A& arguments) : fields(fields_of<A>()) {
    const auto first = reinterpret_cast<const std::byte*>(&arguments);
    bytes.assign(first, first + sizeof(A));
  }
};

// What any node may be given besides what it does. Refused: attributes and an envelope of a node that launches no
// kernel with an argument struct, what is said of foreign kernels of any other node.
struct NodeOptions {
  std::vector<NodeId> after = {};       // orders that no buffer shows
  KernelAttributes attributes = {};     // of a kernel: cluster, priority and their like
  std::optional<Traffic> traffic = {};  // default: the bytes of the uses
  Envelope envelope = {};               // of a kernel with an argument struct
  // The author's word that every thread of a foreign kernel executes griddepcontrol.wait
  // (cudaGridDependencySynchronize) before it touches memory and before it ends: then edges into the node may be
  // programmatic. Otherwise they are full.
  bool waits_for_inputs = false;
  std::optional<uint32_t> exchange = {};  // of a foreign kernel that sends or takes packets: its number in the plan
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
  ~GraphBuilder();
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

  // Declares an array (cuArrayCreate, cuArray3DCreate): a buffer of kind "array", of which copies and listed uses take
  // boxes and the whole. Calls the driver. Refused: what declare() refuses, and formats other than 1, 2 or 4 channels
  // of 8, 16 or 32 bits.
  ArrayRange declare_array(std::string name, CUarray array, Live live = {});

  // Keeps an object for as long as the plan, graphs of it and their launches live: a table that a host function reads,
  // a library's handle. Explicit and captured graphs hold it as a user object of the driver (cuGraphRetainUserObject),
  // so it stays with clones of the graph, with children, and until launches under way have ended; ExplicitGraph::update
  // lets go of those of the plan before. The last to let go may be a thread of the driver, at any time after: the
  // object's destructor must not call CUDA, as those of the library's own buffers, events and streams do, which do not
  // compile here. Refused: null, and a name that another object of the plan has.
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
    ~Scope();
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
                 const NodeOptions& options = {}) {
    return Node<A>{add_kernel(name, kernel.loaded, kernel.shape, std::as_bytes(std::span<const A, 1>(&args, 1)),
                              fields_of<A>(), options)};
  }

  // Adds a node of a kernel that takes any number and type of parameters (graph/launch_arguments.h says what an
  // argument may be). Edges around it are full unless the launch declares that the kernel waits. Refused, besides the
  // above: arguments whose number, size or alignment differs from the code's. An argument that does not say what the
  // kernel does with memory does not compile.
  template <class... P>
  ForeignNode<P...> launch(std::string_view name, const ForeignKernel& kernel, const LaunchShape& shape,
                           const NodeOptions& options, const P&... arguments) {
    (check_argument<P>(), ...);
    using Block = ArgumentBlock<P...>;
    const Block block(arguments...);
    return {add_foreign_kernel(name, kernel.loaded(), shape, options, block.bytes, Block::kFields, block.uses)};
  }
  template <class... P>
  ForeignNode<P...> launch(std::string_view name, const ForeignKernel& kernel, const LaunchShape& shape,
                           const P&... arguments) {
    return launch(name, kernel, shape, NodeOptions{}, arguments...);
  }

  // Copies the first `bytes` of `from` over the first `bytes` of `to`. Not from host to host.
  CopyNode copy(std::string_view name, const CopyEnd& to, const CopyEnd& from, uint64_t bytes,
                const NodeOptions& options = {});
  template <class T>
  CopyNode copy(std::string_view, const Weight<T>& to, const CopyEnd&, uint64_t, const NodeOptions& = {}) = delete;
  // A two-dimensional copy; rows may not overlap in memory.
  CopyNode copy_rows(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyRows& shape,
                     const NodeOptions& options = {});
  template <class T>
  CopyNode copy_rows(std::string_view, const Weight<T>& to, const CopyEnd&, const CopyRows&,
                     const NodeOptions& = {}) = delete;

  // A three-dimensional copy (CUDA_MEMCPY3D); rows and slices may not overlap in memory: a height is at least `rows`. A
  // box that rows at one distance describe, too, becomes a copy of rows. An end in an array has neither pitch nor
  // height in the box, and the box lies within the array, in whole elements.
  CopyNode copy_box(std::string_view name, const CopyEnd& to, const CopyEnd& from, const CopyBox& box,
                    const NodeOptions& options = {});
  template <class T>
  CopyNode copy_box(std::string_view, const Weight<T>& to, const CopyEnd&, const CopyBox&,
                    const NodeOptions& = {}) = delete;

  // Sets every element of `view`. Elements of 1, 2 or 4 bytes take any value, others one whose bytes are all equal.
  template <class T>
  FillNode fill(std::string_view name, View<T> view, std::type_identity_t<T> value, const NodeOptions& options = {}) {
    return fill_rows(name, view, {.count = view.count}, value, options);
  }
  template <class T>
  FillNode fill(std::string_view name, const DeviceArray<T>& array, std::type_identity_t<T> value,
                const NodeOptions& options = {}) {
    return fill(name, array.view(), value, options);
  }
  // A two-dimensional fill, of rows from the first element of `to` on; rows may not overlap in memory, and the pitch is
  // a multiple of the element.
  template <class T>
  FillNode fill_rows(std::string_view name, View<T> to, const FillRows& shape, std::type_identity_t<T> value,
                     const NodeOptions& options = {}) {
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    return add_fill(name, to.address(), to.bytes(), shape, {bytes.data(), bytes.size()}, options);
  }

  // Device memory that exists from this node to its free() in every launch, for nodes of this plan and of plans inside
  // it: a declared buffer of kind "allocation", with undefined contents and the node's name. A later allocation may
  // reuse freed memory. Memory that is declared live-out (declare(allocation.range(), {.live_out = true})) stays
  // allocated until the next launch, and no node frees it: InstantiateOptions::auto_free_on_launch. Not for library
  // nodes and structs that hold pointers, which keep addresses of their own. Not in bodies and children.
  Allocation allocate(std::string_view name, uint64_t bytes, const NodeOptions& options = {});
  // Ends the memory, once, after all that use it: later uses are refused. finish() refuses a plan that does not free
  // all it allocates and does not declare live-out, and one that does both. The node is called "<allocation>.free".
  NodeId free(const Allocation& allocation, const NodeOptions& options = {});

  // Work that a library submits to a stream, as one node: cuBLAS, cuDNN, CUB, CUTLASS, NCCL. `uses`: all memory that
  // the work touches. `submit` is called with a stream: under capture once for each graph that is built of the plan,
  // and without it once for each eager run. It submits its work there and waits for nothing; make its handle, workspace
  // and device memory beforehand. The node owns the function and its captures. `stand_in` computes the same on the host
  // and runs in its place on the CPU driver, in every run; without one the plan can be dumped there, but not run. Full
  // edges only. Building a graph throws Error with the node when the call throws, cannot be captured, or submits
  // nothing.
  NodeId library(std::string_view name, const std::vector<DeclaredUse>& uses, std::function<void(CUstream)> submit,
                 std::function<void()> stand_in = {}, const NodeOptions& options = {});
  NodeId library(std::string_view name, const std::vector<DeclaredUse>& uses, LibraryCall call,
                 const NodeOptions& options = {});

  // A graph built elsewhere, by capture or by hand, as one node: a child graph with a copy of its nodes. `uses`: all
  // that they touch. Refused: a use that is missing or states a write as a read, as far as the copies, fills and values
  // of the graph show it (graph/read/read_graph.h); kernels do not. The graph still belongs to its owner and must
  // outlive the plan; later changes to it do not reach graphs that were built of the plan before. Not captured by
  // CapturedGraph. Building a graph throws Error with the node when there are nodes that a child graph cannot have:
  // conditional nodes, allocations and frees. Calls the driver, to read the graph.
  NodeId graph(std::string_view name, CUgraph graph, const std::vector<DeclaredUse>& uses,
               const NodeOptions& options = {});

  // A matrix product as a library node: of cuBLASLt, or of our reference kernel where the plan says so. Reads a, b, c
  // and bias, writes y and the workspace; without an operand c, beta adds to y. Refused: an operand that is missing,
  // too short, of another element type or not aligned as planned.
  NodeId product(std::string_view name, std::shared_ptr<const MatmulPlan> product, const ProductOperands& operands,
                 const NodeOptions& options = {});

  // Calls `function` on a thread of the driver, after what wrote the ranges it reads and before what reads the ranges
  // it writes (pinned memory). The node owns the function and what it holds. It must not call CUDA; what it throws is
  // reported by the next launch.
  NodeId host(std::string_view name, std::function<void()> function, const std::vector<DeclaredUse>& uses,
              const NodeOptions& options = {});

  // Does nothing, after all of `options.after`.
  NodeId empty(std::string_view name, const NodeOptions& options);

  // Records `event`, of the plan's device, once the ranges of `uses` (Access::in) hold what the plan has written there,
  // so that another stream may wait for it. The node keeps the CUevent, which must outlive the graph; the Event may
  // move.
  NodeId record_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                      const NodeOptions& options = {});
  // Waits for `event`, recorded by another stream before the launch, perhaps of another device. `uses` (Access::out)
  // are the ranges that the other stream wrote before it: later nodes of the plan that use them come after this one.
  NodeId wait_event(std::string_view name, const Event& event, const std::vector<DeclaredUse>& uses,
                    const NodeOptions& options = {});

  // Waits until the first element of `at`, a word of device or pinned memory, compares with `value` as `until` says.
  // The host, another stream or another device writes the word. `uses` (Access::out): the ranges that this writer has
  // written before it.
  template <Word T>
  ValueNode wait_value(std::string_view name, const View<T>& at, Until until, std::type_identity_t<T> value,
                       const std::vector<DeclaredUse>& uses = {}, const NodeOptions& options = {}) {
    return values(name, {wait_until(at, until, value)}, uses, options);
  }
  // Writes the first element of `at` once the ranges of `uses` (Access::in) hold what the plan has written there.
  template <Word T>
  ValueNode write_value(std::string_view name, const View<T>& at, std::type_identity_t<T> value,
                        const std::vector<DeclaredUse>& uses = {}, const NodeOptions& options = {}) {
    return values(name, {write_to(at, value)}, uses, options);
  }
  // Up to 255 waits and writes, one after the other, as one node. The driver sees no order that a value makes: a wait
  // whose value never arrives never ends, and work that a value orders across streams should be ordered by an event,
  // too. Refused: operations that the device does not support. Not in bodies.
  ValueNode values(std::string_view name, const std::vector<ValueOperation>& operations,
                   const std::vector<DeclaredUse>& uses = {}, const NodeOptions& options = {});

  // Signals an external semaphore with `value` (binary ones take any), or waits until it is reached. The semaphore
  // still belongs to its owner and must outlive the graph; `uses` as for events. Not in bodies.
  NodeId signal_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                          const std::vector<DeclaredUse>& uses, const NodeOptions& options = {});
  NodeId wait_semaphore(std::string_view name, CUexternalSemaphore semaphore, uint64_t value,
                        const std::vector<DeclaredUse>& uses, const NodeOptions& options = {});

  // A plan as one node: it uses what the plan's nodes use, so the edges around it are derived as for any node. Refused:
  // a plan that holds conditional nodes (the driver takes them at the top level and in bodies only), or of another
  // device. Buffers it uses must be declared here too.
  ChildNode child(std::string_view name, Plan plan, ChildOwnership ownership = ChildOwnership::moved,
                  const NodeOptions& options = {});

  // A condition with `default_value`, set again at every launch if `reset_each_launch`. Otherwise the value is
  // undefined at the start of every launch, and the default means nothing: a node before the conditional one sets it.
  // On cpu:checked a launch that obeys an undefined value is an error.
  ConditionHandle condition(std::string_view name, uint32_t default_value, bool reset_each_launch = true);
  // Collects the nodes of a body. They may use every buffer declared so far; kernels, copies, fills, empty nodes,
  // children and conditionals only.
  using Body = std::function<void(GraphBuilder&)>;
  NodeId if_else(std::string_view name, ConditionHandle condition, const Body& then, const Body& otherwise = {},
                 const NodeOptions& options = {});
  // Tests the condition before each round: if it is 0 at first, the body never runs. A node of the body sets it.
  NodeId while_loop(std::string_view name, ConditionHandle condition, const Body& body,
                    const NodeOptions& options = {});
  NodeId switch_case(std::string_view name, ConditionHandle condition, const std::vector<Body>& bodies,
                     const NodeOptions& options = {});

  size_t node_count() const;                 // nodes added so far
  NodeId node(std::string_view name) const;  // of that name, with all its scopes; Error where there is none
  const std::string& name() const;           // of the plan
  Device& device() const;                    // of the plan

  // The plan, with its edges, checked against missing_orders; bodies get the same policy. Ends the builder. Where a
  // loop lies in a conditional node, or such a node in a loop, all edges are serial, whatever the policy: there the
  // driver failed even with the conditional nodes in order (see loops_address in graph/node.h).
  Plan finish(EdgePolicy policy = EdgePolicy::programmatic) &&;
  // The graph of that plan (graph/graph_exec.h), built and instantiated.
  ExplicitGraph instantiate(EdgePolicy policy = EdgePolicy::programmatic) &&;

 private:
  friend class PlanReplay;  // graph/edit/plan_replay.h
  class State;              // graph/builder_state.h

  template <class T>
  static constexpr bool kCallsDriver = std::is_same_v<T, DeviceBuffer> || std::is_same_v<T, PinnedBuffer> ||
                                       std::is_same_v<T, Event> || std::is_same_v<T, Stream>;

  explicit GraphBuilder(std::unique_ptr<State> state);

  NodeId add_kernel(std::string_view name, const LoadedKernel* kernel, const LaunchShape& shape,
                    std::span<const std::byte> arguments, std::span<const FieldInfo> fields,
                    const NodeOptions& options);
  NodeId add_foreign_kernel(std::string_view name, const LoadedKernel& kernel, const LaunchShape& shape,
                            const NodeOptions& options, std::span<const std::byte> arguments,
                            std::span<const FieldInfo> fields, std::span<const ArgumentUse> uses);
  // `bytes`: from `to` to the end of the view.
  FillNode add_fill(std::string_view name, uint64_t to, uint64_t bytes, const FillRows& shape,
                    std::span<const unsigned char> pattern, const NodeOptions& options);
  void keep_object(std::string_view name, std::shared_ptr<const void> object);

  std::unique_ptr<State> state_;
};

}  // namespace nodewright
