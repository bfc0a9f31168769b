// Executable graphs: a snapshot that later changes to the graph do not reach, and its runs, one node at a time.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/cpu_driver/cpu_driver_api.h"
#include "runtime/cpu_driver/graph_objects.h"
#include "runtime/cpu_driver/stream_queue.h"

namespace nodewright::cpu {

struct GraphBody;

struct ExecNode {
  uint64_t id;  // GraphNode::id
  CUgraphNodeType type;
  bool enabled = true;
  Work work;
  std::vector<uint32_t> after;         // indices into the body
  std::vector<CUgraphEdgeData> edges;  // one for each of `after`
  std::vector<uint32_t> before;        // the nodes that wait for this one
  std::shared_ptr<const GraphBody> child;
};

struct GraphBody {
  std::vector<ExecNode> nodes;
};

struct GraphExec {
  CUgraphExec handle = nullptr;
  std::shared_ptr<const GraphBody> body;  // shared with runs under way; copied before a change
  CompletionRef last_run;                 // one run at a time

  // The body for a change.
  GraphBody& writable();
};

// The graph must be free of cycles.
std::shared_ptr<GraphBody> make_body(const Graph& graph);

// Whether every kernel of the body is still loaded.
bool all_loaded(const GraphBody& body);

// One launch under way.
class GraphRun {
 public:
  GraphRun(State& state, std::shared_ptr<const GraphBody> body);

  // Runs one ready node, chosen by the schedule. True: none is left.
  bool step(std::unique_lock<std::mutex>& lock, WorkerPool& pool);

 private:
  size_t choose();

  State& state_;
  std::shared_ptr<const GraphBody> body_;
  std::vector<uint32_t> missing_;  // dependencies not yet run, by node
  std::vector<uint32_t> ready_;    // sorted
  size_t left_;
  uint64_t random_;
};

}  // namespace nodewright::cpu
