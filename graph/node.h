// A plan: the nodes of a graph, its edges with their reasons, and its named buffers, before any driver sees it. Plain
// data; made by GraphBuilder, read by the three runs, the dumps and the hazard check.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/field_visit.h"
#include "kernels_src/launch_shape.h"
#include "runtime/green_context.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// What a node does with a range. `frozen`: reads memory that no node of the plan writes, perhaps before its wait.
// `in` reads, `out` writes (every byte of every live row), `inout` reads and writes.
enum class Access : uint8_t { frozen, in, out, inout };
constexpr bool writes(Access access) { return access == Access::out || access == Access::inout; }
constexpr bool reads(Access access) { return access != Access::out; }

// What a node does.
enum class NodeKind : uint8_t {
  kernel,            // launches a kernel
  memcpy,            // copies bytes, or rows of them
  memset,            // fills elements, or rows of them
  host,              // a function of the program, called on a thread of the driver
  empty,             // nothing; gathers orders
  child,             // a plan as one node
  event_record,      // an event that other streams and the host may wait for
  event_wait,        // waits for an event recorded elsewhere
  conditional,       // runs one of its bodies, or one again and again, as a kernel has set its condition
  library,           // the work that a library submits to a stream
  allocate,          // device memory for the nodes after it
  free,              // the end of that memory
  values,            // waits for values in memory and writes others, as the host and other streams do
  semaphore_signal,  // signals an external semaphore: of a graphics API, of another process
  semaphore_wait,    // waits for one
  other,             // what plans have no word for, of a graph that was built elsewhere (graph/read/read_graph.h)
};

// full: the later node starts after the earlier one has completed. programmatic: it may start before, and its wait
// returns after the earlier one has completed. other: of a graph that was built elsewhere, with the driver's own words
// (Edge::driver_type); taken for no order of memory.
enum class EdgeType : uint8_t { full, programmatic, other };

// serial: one chain in the order of the calls. full: the derived edges, all full. programmatic: the derived edges,
// programmatic wherever the kernels, what they read before they wait, and the device allow it.
enum class EdgePolicy : uint8_t { serial, full, programmatic };

// Why one node must follow another: read after write (raw), write after read (war), write after write (waw); or because
// the order was asked for, by `after` (declared) or by the policy (serial).
enum class Hazard : uint8_t { raw, war, waw, declared, serial };

// if_: body 0 when the condition is not 0, else body 1 where there is one. while_: body 0 as long as it is not 0.
// switch_: the body with the condition's number, none when there is no such body.
enum class ConditionalKind : uint8_t { if_, while_, switch_ };

// The words of dumps: "inout", "memset", "programmatic", "RAW", "while".
std::string_view to_string(Access access);
std::string_view to_string(NodeKind kind);
std::string_view to_string(EdgeType type);
std::string_view to_string(Hazard hazard);
std::string_view to_string(ConditionalKind kind);

// A buffer that nodes may name. live_in: holds a value before the plan runs; live_out: it is read after the plan has
// run.
struct Buffer {
  NamedRange range;  // its name, address, bytes and kind
  bool live_in = false, live_out = false;
  bool peer = false;    // perhaps the memory of another device
  uint64_t serial = 0;  // of the DeviceBuffer or PinnedBuffer it lies in (LiveBuffers); 0: memory of another owner
};

// Whether a use is of packets between devices. none: of other memory. out: it writes them into another device's memory.
// in: it reads what another device writes here meanwhile, which no edge orders.
enum class PeerUse : uint8_t { none, out, in };

// One range that one node touches.
struct Use {
  std::string_view field;  // of the argument struct; "to" and "from" for copies and fills; for a child or a conditional
                           // the inner node. Lives as long as the program.
  uint32_t buffer = 0;     // index into Plan::buffers
  uint64_t offset = 0;     // bytes from the start of the buffer
  uint64_t bytes = 0;      // never 0
  Access access = Access::in;    // what the node does there
  bool settled = false;          // perhaps read before the wait: writers must have completed when the node starts
  PeerUse peer = PeerUse::none;  // packets: of exchange PlanNode::exchange
};

// Bytes really moved (bytes_read, bytes_written), which may be fewer than the ranges declared (one row of an embedding,
// the live part of a cache).
struct Traffic {
  uint64_t bytes_read = 0, bytes_written = 0;
};

// `rows` rows of `bytes` bytes, to_pitch and from_pitch bytes apart; a pitch counts only where there are several rows.
struct CopyParameters {
  uint64_t to = 0, from = 0;  // addresses
  uint64_t bytes = 0;
  bool to_host = false, from_host = false;  // pinned host memory; never both
  uint64_t rows = 1, to_pitch = 0, from_pitch = 0;
  // A box: that many times these rows, from slice to slice to_height and from_height rows further on. Otherwise 1 and
  // 0.
  uint64_t slices = 1, to_height = 0, from_height = 0;
  // Ends in arrays, or null: their addresses are those of ArrayPlaces, pitch and height always the array's own.
  CUarray to_array = nullptr, from_array = nullptr;
  bool touches_array() const { return to_array != nullptr || from_array != nullptr; }
  bool operator==(const CopyParameters&) const = default;
};

// `rows` rows of `count` elements; the pitch is the distance of two rows in bytes and counts only where there are
// several.
struct FillParameters {
  uint64_t to = 0;             // address
  uint32_t value = 0;          // the low element_bytes bytes of it
  uint32_t element_bytes = 1;  // 1, 2 or 4
  uint64_t count = 0;
  uint64_t rows = 1, pitch = 0;
  bool operator==(const FillParameters&) const = default;
};

// Attributes of a kernel node, in the driver's sense. With the defaults none is set.
struct KernelAttributes {
  std::array<unsigned, 3> cluster{1, 1, 1};  // blocks of a cluster; each divides the grid's; or the shape says it
  bool cooperative = false;                  // all blocks are on the device at once
  int priority = 0;                          // lower numbers first, within DeviceProperties' range
  int shared_carveout_percent = -1;          // of L1, preferred as shared memory; -1: as the shape says
  // Kernels may change the node's arguments and shape, and enable or disable it (cudaGraphKernelNodeUpdatesApply),
  // through the handle that ExplicitGraph::device_node returns. Only explicit graphs support this: upload the graph
  // before the first launch after a build or a patch of the node. Other runs launch an ordinary kernel. Not in children
  // and bodies.
  bool device_updatable = false;
  // The node runs on the multiprocessors of a green context alone; blocks of a cooperative one fit there at once. Only
  // explicit graphs support this: other runs launch it on the multiprocessors of their stream. Needs a kernel that has
  // a CUkernel, as those of a KernelCache and of load_kernel do.
  GreenPlace green;
  bool operator==(const KernelAttributes&) const = default;
};

// How a value in memory compares with the one that is waited for. at_least: by the sign of their difference, so that a
// counter may wrap around. equal: bit by bit. any_bit: they share a bit that is 1. any_zero: they share one that is 0.
enum class Until : uint8_t { at_least, equal, any_bit, any_zero };

// One operation of a values node.
struct ValueOperation {
  bool waits = false;             // otherwise it writes
  uint32_t bytes = 4;             // of the word: 4 or 8
  Until until = Until::at_least;  // of a wait
  uint64_t address = 0;           // of the word
  uint64_t value = 0;             // to compare with, or to write
  bool operator==(const ValueOperation&) const = default;
};

// What a node does with an external semaphore: the value to signal, or to wait for.
struct SemaphoreParameters {
  CUexternalSemaphore semaphore = nullptr;  // not owned
  uint64_t value = 0;                       // of a fence; binary semaphores have none
  bool operator==(const SemaphoreParameters&) const = default;
};

// A host node's function with the data it owns. What it throws is kept for the next launch to report.
struct HostCall {
  std::string node_name;             // for errors
  std::function<void()> function;    // called on a thread of the driver
  std::atomic<bool> failed = false;  // it threw
  std::string problem;               // what the function threw; valid once `failed`
};

// What a library node does. Called whenever a graph is built or the plan runs eagerly; not thread-safe by itself.
struct LibraryCall {
  // Submits work to the stream, which runs it or captures it, and waits for nothing.
  std::function<void(CUstream)> submit = {};
  std::function<void()> stand_in = {};  // computes the same on the host: runs in its place on the CPU driver
  bool on_cpu_driver = false;           // `submit` makes its driver calls through Driver: it needs no stand-in
  CUgraph graph = nullptr;  // instead: the nodes of this graph, which belongs to the program; `submit` launches them
  std::string what = {};    // for dumps; calls with the same text need the same kernels
  bool is_ready = false;    // its kernels are on the device already: no call is captured beforehand to load them
};

// What a library node is in the driver's graph.
enum class LibraryForm : uint8_t {
  kernel,    // the one kernel of its call, with that kernel's arguments and attributes
  graph,     // a child graph of all that its call has submitted
  stand_in,  // the host function that stands in for the call on the CPU driver
};
std::string_view to_string(LibraryForm form);

// Conditions lie above all memory: no address of the device or of the host has these bits, since both have 57 at most.
inline constexpr uint64_t kConditionBase = uint64_t{0xc0de} << 48;
// Tells plans apart by their names, the same way in every process: their conditions and allocations lie at addresses of
// their own.
uint32_t name_hash(std::string_view plan_name);
// Where the conditions of the plan of that name begin: 64 KiB of addresses.
uint64_t conditions_address(std::string_view plan_name);

// Memory that a plan allocates has an address when a graph is built or the plan runs. Until then it lies here, above
// all memory: the plan's name chooses among 2^16 places of 1 TiB each.
inline constexpr uint64_t kAllocationBase = uint64_t{0xa1} << 56;
constexpr bool is_allocated(uint64_t address) { return address >> 56 == kAllocationBase >> 56; }

// A value that kernels set and one conditional node tests. In the plan it is a buffer of kind "condition" at an address
// from kConditionBase on, so that setting and testing are ordered like writing and reading.
struct ConditionInfo {
  uint64_t address = 0;
  uint32_t default_value = 0;  // before a kernel sets another, if reset_each_launch; otherwise it means nothing
  // To the default, when the graph is launched. Otherwise the value is undefined at the start of each launch (CUDA C++
  // Programming Guide, "Conditional Handles"): what an earlier launch has set may or may not be there.
  bool reset_each_launch = true;
};

// What a node of a graph that was built elsewhere is beyond a plan's words (graph/read/read_graph.h).
struct ReadNode {
  CUgraphNode handle = nullptr;  // in the graph that was read; as long as that
  std::string what;              // of kind other: all that it is; else what the node has besides; or ""
  // A kernel's possible uses, which order nothing: from each address in its arguments, where nobody has said what it
  // does there, to the end of that memory. Their access means nothing.
  std::vector<Use> possible;
  std::vector<uint32_t> pointers;  // where addresses begin in PlanNode::arguments: the possible uses' and stated ones'
};

struct Plan;

// One node. `kind` says which members are used.
struct PlanNode {
  // `memory`: of the plan that the node will be in. What is copied from it lies elsewhere.
  explicit PlanNode(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : uses(memory), arguments(memory) {}

  uint32_t id = 0;           // its index in Plan::nodes
  uint32_t layer_chars = 0;  // of `name`: the outermost scope
  std::string name;          // with all its scopes: "l3.attend"
  NodeKind kind = NodeKind::empty;
  bool waits_for_inputs = false;  // by construction or declared (edge_derivation.cpp); all else gets full in-edges
  Traffic traffic;                // bytes really moved
  std::pmr::vector<Use> uses;     // all memory that it touches

  // kernel
  const LoadedKernel* kernel = nullptr;  // owned by the KernelCache, which must outlive every run of the plan
  LaunchShape shape;
  KernelAttributes attributes;
  std::pmr::vector<std::byte> arguments;  // the argument struct as it was when the node was added
  std::span<const FieldInfo> fields;      // of the argument struct; static
  std::optional<uint32_t> exchange;       // the one that the node takes part in, where it has a peer use

  CopyParameters copy;                 // memcpy
  FillParameters fill;                 // memset
  std::shared_ptr<HostCall> host;      // host; library: the stand-in, on the CPU driver
  CUevent event = nullptr;             // event_record, event_wait: not owned
  uint64_t allocated = 0;              // allocate, free: the planned address, from kAllocationBase on
  std::vector<ValueOperation> values;  // values
  SemaphoreParameters semaphore;       // semaphore_signal, semaphore_wait

  ConditionalKind conditional = ConditionalKind::if_;  // conditional
  uint64_t condition = 0;                              // conditional: ConditionInfo::address
  std::vector<std::shared_ptr<const Plan>> bodies;     // child: one; conditional: one a branch
  bool patchable_inside = false;                       // child: moved into the graph, not cloned

  std::shared_ptr<const LibraryCall> library;  // library
  std::shared_ptr<const ReadNode> read;        // of a graph that was built elsewhere

  // The outermost scope: "l3", or "".
  std::string_view layer() const { return std::string_view(name).substr(0, layer_chars); }
  // "" for nodes that are no kernels.
  std::string_view kernel_name() const { return kernel == nullptr ? std::string_view() : kernel->name; }
};

// The bytes of a condition's buffer, of which a kernel sets four.
inline constexpr uint64_t kConditionBytes = sizeof(uint32_t);
inline constexpr std::string_view kConditionField = "condition";  // Use::field of the conditional node that obeys it

// Whether a WHILE node lies in the node or is the node.
bool loops(const PlanNode& node);

// A loop never runs at the same time as another node: graphs in which one did ended in CUDA_ERROR_LAUNCH_FAILED now and
// then, on an H200 beside another conditional node, on an H100 beside any (driver 580.159.04;
// bench/results/2026-11-21-h200-loops.txt, 2026-11-25-h100-loops.txt). So a plan has a range at this address that loops
// write and all other nodes read: it orders them as memory would. Nor does the body of a loop run nodes side by side:
// each of them writes that range, too (bench/results/2026-11-25-h200-graph-library.txt).
uint64_t loops_address(std::string_view plan_name);
// Use::field of a conditional node's use of that range. Other nodes have none: only a plan with loops orders them.
inline constexpr std::string_view kLoopsField = "loops";

// "then", "else", "body", "case 2": body `index` of a conditional node.
std::string body_name(ConditionalKind kind, size_t index);

// The range that makes an edge necessary. No range for declared and serial.
struct Reason {
  Hazard hazard = Hazard::raw;     // of what kind
  uint32_t buffer = 0;             // index into Plan::buffers
  uint64_t offset = 0, bytes = 0;  // of the range in the buffer
  bool operator==(const Reason&) const = default;
};

// `to` follows `from`.
struct Edge {
  uint32_t from = 0, to = 0;         // node ids, from < to
  EdgeType type = EdgeType::full;    // when `to` may start
  std::pmr::vector<Reason> reasons;  // at least one
  // The driver's type and ports (CUgraphEdgeData), where the type is `other`.
  uint8_t driver_type = 0, from_port = 0, to_port = 0;
};

// What a plan keeps alive (GraphBuilder::keep).
struct KeptObject {
  std::string name;                    // in dumps
  std::shared_ptr<const void> object;  // never null
};

// `node` follows `earlier` because its maker said so, also where other edges imply it.
struct DeclaredOrder {
  uint32_t node = 0, earlier = 0;  // node ids
};

// Memory for the small parts of a plan's nodes and edges, freed all at once. A copy of a plan uses the heap.
class PlanMemory {
 public:
  PlanMemory() = default;
  // Takes `first_bytes` at first, and more as needed.
  explicit PlanMemory(size_t first_bytes)
      : resource_(std::make_unique<std::pmr::monotonic_buffer_resource>(first_bytes)) {}
  PlanMemory(const PlanMemory&) {}
  PlanMemory(PlanMemory&&) noexcept = default;
  PlanMemory& operator=(const PlanMemory&) { return *this; }  // the nodes on the left stay where they are
  PlanMemory& operator=(PlanMemory&& other) noexcept {        // the replaced nodes are freed after this
    resource_.swap(other.resource_);
    return *this;
  }
  ~PlanMemory() = default;

  // Where to allocate: the heap for a memory made without bytes.
  std::pmr::memory_resource* get() const {
    return resource_ != nullptr ? resource_.get() : std::pmr::get_default_resource();
  }

 private:
  std::unique_ptr<std::pmr::memory_resource> resource_;
};

// Facts about a plan, each a name and a text: {"bucket", "8"}. Dumps show them and comparisons compare them.
using PlanFacts = std::vector<std::pair<std::string, std::string>>;

// What a graph will be. Plain data: it may be copied, edited and read by several threads.
struct Plan {
  PlanMemory memory;         // outlives the members below
  uint64_t id = 0;           // of the builder that made it, unique in the process; copies share it
  std::string name;          // "decode.b8"; a body's is its node's with the outer plan's before it: "loop/until.body"
  PlanFacts facts;           // given by its maker
  Device* device = nullptr;  // not owned
  std::vector<Buffer> buffers;            // in the order of declare()
  std::vector<ConditionInfo> conditions;  // of this plan's own conditional nodes
  std::vector<PlanNode> nodes;            // in an order in which they may run
  std::vector<Edge> edges;                // by `to`, then by `from`
  std::vector<KeptObject> kept;           // for as long as graphs of the plan, and their launches, live
  std::vector<DeclaredOrder> after;       // by `node`, then by `earlier`: what an edit of the plan keeps
  // What the nodes of a plan that read_graph made refer to; else null. Such a plan is looked at, never run.
  std::shared_ptr<const void> read;
};

// "residual[0,8192)"
std::string describe_range(const Plan& plan, uint32_t buffer, uint64_t offset, uint64_t bytes);
// "RAW residual[0,8192)", "declared", "serial"
std::string describe(const Plan& plan, const Reason& reason);

// "32 bits >= 0x3", "64 bits := 0x4"
std::string describe(const ValueOperation& operation);

// Names a node of the plan that one builder made, and of its copies.
struct NodeId {
  uint32_t index = 0;  // PlanNode::id
  uint64_t plan = 0;   // Plan::id: a node of another plan is refused, whatever that plan's name is
};

// A node whose patches are typed by what it is.
struct CopyNode : NodeId {};
struct FillNode : NodeId {};
struct ChildNode : NodeId {};
struct ValueNode : NodeId {};

// A kernel node whose argument struct is an A.
template <KernelArgs A>
struct Node : NodeId {};

// Throws Error unless, in this plan and in all plans inside it, every id and index is within range, names are unique,
// and edges are sorted, unique and lead from an earlier node to a later one. Each plan inside has a name of its own.
// Every run of a plan relies on this.
void check_plan(const Plan& plan);

}  // namespace nodewright
