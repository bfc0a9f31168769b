// A node that a library submits to a stream: cuBLASLt, cuDNN, CUB, CUTLASS, NCCL. The call is captured once, when the
// graph is built, and what it has submitted is put into the graph: one kernel as a kernel node of ours, anything else
// as a child graph, as is a graph that was built elsewhere. With captured_run, the only file that captures.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"
#include "graph/nodes/graph_handle.h"
#include "runtime/stream.h"

namespace nodewright {

// Where a node is added: the graph, and what it comes after.
struct NodePlace {
  CUgraph graph = nullptr;
  std::span<const CUgraphNode> before;
  std::span<const CUgraphEdgeData> types;
};

// One node that a library call has submitted, as the driver tells it. Of a kernel its function, grid, block, dynamic
// shared bytes and arguments; of external semaphores which, and their values; of other nodes their type.
struct SubmittedNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUfunction function = nullptr;
  CUkernel kernel = nullptr;  // in place of a function
  std::array<unsigned, 7> shape{};
  std::vector<std::byte> arguments;  // or semaphores and values; empty where the driver does not tell them
  bool operator==(const SubmittedNode&) const = default;
};

// Which nodes a graph has, for dumps: "2 × kernel, 1 × external semaphore wait". `name`: of its node, for errors.
std::string names_of_nodes(const Driver& driver, CUgraph graph, std::string_view name);

// A library node in a graph of the driver.
struct BuiltLibrary {
  CUgraphNode node = nullptr;
  LibraryForm form = LibraryForm::kernel;
  std::vector<SubmittedNode> submitted;  // empty for a stand-in
};

// Calls the node's library on `stream`, which runs or captures what it submits. Throws Error with the node when the
// call throws, and on the CPU driver, where libraries do not run.
void submit_library(const PlanNode& node, const Driver& driver, CUstream stream);

struct AddedLibrary {
  BuiltLibrary built;
  // For kernel nodes. Keeps alive the user objects (cuda.h) that the library tied to the captured graph: it must
  // outlive every launch.
  std::optional<GraphHandle> captured;
};
// Adds the node. The call is captured on `stream`, where nothing else is captured; nothing runs. `preferred`: kernel,
// or graph for a child graph in every case. Throws Error with the node when the call throws, cannot be captured, or has
// submitted nothing.
AddedLibrary add_library(const PlanNode& node, const NodePlace& place, const Stream& stream, LibraryForm preferred);

// Whether both are of one form and have submitted the same kernels, whatever their shapes and arguments.
bool same_kernels(const BuiltLibrary& a, const BuiltLibrary& b);

// What the driver holds for the node `held`, compared with what was added: one line for each difference.
std::vector<std::string> library_differences(const PlanNode& node, const Driver& driver, const BuiltLibrary& built,
                                             CUgraphNode held);

// Has libraries load what the library nodes of plans need, before there are graphs of them: captures one call for each
// LibraryCall::what on each device, and each call without, and keeps nothing. Takes device memory, as graphs then do
// not.
class LibraryLoader {
 public:
  void load(const Plan& plan);
  size_t loaded() const { return loaded_; }  // calls so far

 private:
  struct OfDevice {
    Stream stream;
    std::set<std::string> seen;
  };
  std::map<const Device*, OfDevice> devices_;
  size_t loaded_ = 0;
};

}  // namespace nodewright
