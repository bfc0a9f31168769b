// Executable graphs: a snapshot that later changes to the graph do not reach. Its launches: graph_run.h.
#pragma once

#include <memory>
#include <vector>

#include "cpu_driver/cuda_names.h"
#include "cpu_driver/graphs/graph_objects.h"
#include "cpu_driver/work/stream_queue.h"

namespace nodewright::cpu {

struct GraphBody;

struct ExecNode {
  uint64_t id;  // GraphNode::id
  CUgraphNodeType type;
  bool enabled = true;
  Work work;
  std::vector<uint32_t> after;                          // indices into the body
  std::vector<CUgraphEdgeData> edges;                   // one for each of `after`
  std::vector<uint32_t> before;                         // the nodes that wait for this one
  std::vector<std::shared_ptr<const GraphBody>> inner;  // what a child node runs, or what a conditional node may run
};

struct GraphBody {
  std::vector<ExecNode> nodes;
  std::vector<UserReferences> kept;
};

// Where a node stands: an index into each body on the way down, and which inner body leads on.
struct ExecStep {
  uint32_t node, inner;
};
using ExecPlace = std::vector<ExecStep>;

struct GraphExec {
  CUgraphExec handle = nullptr;
  unsigned number = next_graph_number();
  uint64_t flags = 0;                                      // of the instantiation
  std::vector<std::shared_ptr<Conditional>> conditionals;  // of the graph and of those inside it
  std::shared_ptr<const GraphBody> body;                   // shared with runs under way; copied before a change
  CompletionRef last_run;                                  // one run at a time
  std::vector<std::shared_ptr<GraphMemory>> left;          // memory that a launch leaves allocated
  bool updatable = false;                                  // it holds kernels that the device may update
  bool needs_upload = false;                               // updatable, and new or changed since it was uploaded

  const ExecNode& at(const ExecPlace& place) const;
  // The node for a change: copies each body on the way that a run holds.
  ExecNode& change(const ExecPlace& place);
};

// The graph must be free of cycles.
std::shared_ptr<GraphBody> make_body(const Graph& graph);

// Those of the graph and of the graphs inside it.
std::vector<std::shared_ptr<Conditional>> conditionals_in(const Graph& graph);

// The place of the node whose GraphNode::id is `id`, at any depth. False: it has none.
bool find_place(const GraphBody& body, uint64_t id, ExecPlace& place);

// What an update refuses: the first node of `now`, in order, that `next` may not replace.
struct UpdateProblem {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  size_t node = 0;  // index into the outermost body
};

// Stricter than NVIDIA's driver: nodes in the same order of addition with the same edges. Kernels may be others of the
// same device. `flags`: of the executable graph.
UpdateProblem compare_for_update(const GraphBody& now, const GraphBody& next, uint64_t flags);

// Whether an executable graph's node takes this work, of the same type.
bool may_become(const Work& now, const Work& next, uint64_t flags);

// After an update nodes keep answering to the graph that the exec was made from, and to whether they are enabled.
void keep_identity(const GraphBody& now, GraphBody& next);

// Whether every kernel of the body is still loaded.
bool all_loaded(const GraphBody& body);

// Calls f(const ExecNode&) for every node at any depth.
template <class F>
void for_each_node(const GraphBody& body, F&& f) {
  for (const ExecNode& node : body.nodes) {
    f(node);
    for (const auto& inner : node.inner) for_each_node(*inner, f);
  }
}

}  // namespace nodewright::cpu
