// The captured run of a plan: the eager launches, recorded once by stream capture and replayed as a graph. It exists to
// be compared with the explicit run; with library_nodes the only file that captures.
#pragma once

#include "graph/node.h"
#include "graph/nodes/graph_handle.h"
#include "graph/nodes/host_call.h"
#include "graph/run/recapture.h"
#include "runtime/stream.h"

namespace nodewright {

// A captured graph of a plan. Not thread-safe: one thread launches, recaptures and destroys.
class CapturedGraph {
 public:
  // Captures run_eager(plan, stream), instantiates and uploads. Nothing runs. The plan may be dropped afterwards.
  // Throws Error for a plan with a conditional node, whose condition is not known while capturing, or with a graph
  // built elsewhere.
  CapturedGraph(const Plan& plan, const Stream& stream);

  // Captures `plan` again, nodes and edges as before but with other arguments, and updates the instantiated graph in
  // place: what a program without patches does. Throws Error when the driver finds that more than arguments changed;
  // then later launches are as before.
  void recapture(const Plan& plan, const Stream& stream);

  // The same into a copy of the driver's graph, which compares as it captures and calls `on_change` for each node whose
  // parameters are others: a named list of changes, before anything changes. Returns false where `on_change` did; then,
  // and when it or the driver throws, later launches are as before. Throws Error, too, where the driver has no
  // cuStreamBeginRecaptureToGraph (CUDA 13.3).
  bool recapture(const Plan& plan, const Stream& stream, const OnRecaptureChange& on_change);

  // Throws Error with what a host node threw in an earlier run. May be destroyed in flight, as an ExplicitGraph.
  void launch(const Stream& stream);
  const std::string& name() const { return name_; }
  CUgraphExec exec() const { return exec_.get(); }

  // Times of the host, in ms: the latest capture_ms, instantiate_ms, upload_ms and update_ms.
  struct Stats {
    double capture_ms = 0, instantiate_ms = 0, upload_ms = 0, update_ms = 0;
  };
  const Stats& stats() const { return stats_; }  // of all captures so far

 private:
  void refuse_recapture(const Plan& plan) const;
  void update_to(GraphHandle graph, const Plan& plan);

  std::string name_;
  const Device* device_;
  const Driver* driver_;
  GraphHandle graph_;
  GraphExecHandle exec_;
  HostCalls host_calls_;
  Stats stats_;
};

// The plan with the edges that stream capture makes of it, to be dumped beside the plan's own: captures as
// CapturedGraph does and reads the driver's edges. They give no reason but the stream's order ("serial"). Empty nodes
// leave none, and are left out. Nothing runs. Throws Error for a plan with conditional nodes, children or products,
// whose nodes cannot be told in the captured graph.
Plan plan_as_captured(const Plan& plan, const Stream& stream);

}  // namespace nodewright
