// One of a plan's three runs, chosen at run time.
#pragma once

#include <string_view>
#include <variant>

#include "graph/graph_exec.h"
#include "graph/run/captured_run.h"

namespace nodewright {

// eager: node by node on a stream; captured: a graph by stream capture; explicit_: the graph node by node.
enum class RunMode : uint8_t { eager, captured, explicit_ };

std::string_view to_string(RunMode mode);  // "eager", "captured", "explicit"

// A plan, ready to be launched. Not thread-safe.
class PlanRun {
 public:
  // Builds and uploads what the mode needs. `stream` must outlive the run; launches go there.
  PlanRun(Plan plan, RunMode mode, const Stream& stream);

  // As ExplicitGraph::launch; a captured run does not check that its buffers still exist.
  void launch();
  RunMode mode() const { return static_cast<RunMode>(run_.index()); }
  // The graph of an explicit run, for patches; null otherwise.
  ExplicitGraph* explicit_graph() { return std::get_if<ExplicitGraph>(&run_); }

 private:
  const Stream& stream_;
  BufferWatch buffers_;                                   // of an eager run
  std::variant<Plan, CapturedGraph, ExplicitGraph> run_;  // in the order of RunMode
};

}  // namespace nodewright
