// What a graph is before any driver sees it: a plan of nodes, edges with reasons, and named buffers. Plain data; made
// by GraphBuilder, read by the three runs, the dumps and the hazard check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/field_visit.h"
#include "kernels_src/launch_shape.h"
#include "runtime/kernel_cache.h"
#include "runtime/memory.h"

namespace nodewright {

// What a node does with a range. `frozen`: reads memory that no node of the plan writes, perhaps before its wait.
// `in` reads, `out` writes (every byte of every live row), `inout` reads and writes.
enum class Access : uint8_t { frozen, in, out, inout };
constexpr bool writes(Access access) { return access == Access::out || access == Access::inout; }
constexpr bool reads(Access access) { return access != Access::out; }

enum class NodeKind : uint8_t { kernel, memcpy, memset, empty };

// full: the later node starts after the earlier one has completed. programmatic: it may start before, and its wait
// returns after the earlier one has completed.
enum class EdgeType : uint8_t { full, programmatic };

// Why one node must follow another: read after write, write after read, write after write; or it was asked for.
enum class Hazard : uint8_t { raw, war, waw, declared, serial };

std::string_view to_string(Access access);
std::string_view to_string(NodeKind kind);
std::string_view to_string(EdgeType type);
std::string_view to_string(Hazard hazard);

// A buffer that nodes may name. live_in: holds a value before the plan runs; live_out: somebody reads it afterwards.
struct Buffer {
  NamedRange range;
  bool live_in = false, live_out = false;
};

// One range that one node touches.
struct Use {
  std::string field;    // of the argument struct; "to" and "from" for copies and fills
  uint32_t buffer = 0;  // index into Plan::buffers
  uint64_t offset = 0;  // bytes from the start of the buffer
  uint64_t bytes = 0;   // never 0
  Access access = Access::in;
};

// Bytes really moved, which may be fewer than the ranges declared (one row of an embedding, the live part of a cache).
struct Traffic {
  uint64_t bytes_read = 0, bytes_written = 0;
};

struct CopyParameters {
  uint64_t to = 0, from = 0;  // addresses
  uint64_t bytes = 0;
  bool to_host = false, from_host = false;  // pinned host memory; never both
};

struct FillParameters {
  uint64_t to = 0;             // address
  uint32_t value = 0;          // the low element_bytes bytes of it
  uint32_t element_bytes = 1;  // 1 or 4
  uint64_t count = 0;          // elements
};

// One node. Which members mean something depends on `kind`.
struct PlanNode {
  uint32_t id = 0;    // its index in Plan::nodes
  std::string name;   // with all its scopes: "l3.attend"
  std::string layer;  // the outermost scope: "l3", or ""
  NodeKind kind = NodeKind::empty;
  Traffic traffic;
  std::vector<Use> uses;

  // kernel
  const LoadedKernel* kernel = nullptr;  // owned by the KernelCache, which must outlive every run of the plan
  std::string kernel_name;
  bool waits_for_inputs = false;  // the kernel waits on every path; otherwise it gets full in-edges only
  LaunchShape shape;
  std::vector<std::byte> arguments;  // the argument struct as it was when the node was added
  std::vector<FieldInfo> fields;     // of the argument struct

  CopyParameters copy;  // memcpy
  FillParameters fill;  // memset
};

// The range that makes an edge necessary. No range for declared and serial.
struct Reason {
  Hazard hazard = Hazard::raw;
  uint32_t buffer = 0;
  uint64_t offset = 0, bytes = 0;
  bool operator==(const Reason&) const = default;
};

struct Edge {
  uint32_t from = 0, to = 0;  // node ids, from < to
  EdgeType type = EdgeType::full;
  std::vector<Reason> reasons;
};

struct Plan {
  std::string name;           // "decode.b8"
  std::optional<int> bucket;  // rows it was built for
  Device* device = nullptr;   // not owned
  std::vector<Buffer> buffers;
  std::vector<PlanNode> nodes;  // an order in which they may run
  std::vector<Edge> edges;      // by `to`, then by `from`
};

// "residual[0,8192)"
std::string describe_range(const Plan& plan, uint32_t buffer, uint64_t offset, uint64_t bytes);
// "RAW residual[0,8192)", "declared", "serial"
std::string describe(const Plan& plan, const Reason& reason);

// Names a node of one plan. A plan built again in the same way under the same name has the same ids.
struct NodeId {
  uint32_t index = 0;
  uint64_t plan = 0;  // plan_token of the plan's name: a node of another plan is refused
};
uint64_t plan_token(std::string_view plan_name);

// A kernel node whose argument struct is an A.
template <KernelArgs A>
struct Node : NodeId {};

// Throws Error unless every id and index is within range, names are unique, edges go from an earlier node to a later
// one, and no edge is there twice: what every run of a plan relies on.
void check_plan(const Plan& plan);

}  // namespace nodewright
