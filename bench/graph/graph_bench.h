// Times what a graph costs to build, to launch, to run and to change, each way of running a plan beside the others.
// Within a repetition every variant has its turn, and the next repetition starts with another.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/graph/saxpy_graph.h"
#include "bench/spread.h"
#include "graph/graph_exec.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"

namespace nodewright {

// Everything in microseconds, of the whole graph unless it says otherwise. CPU time unless it starts with `gpu` or
// `loop`. Steady: a build after earlier builds, a launch after earlier launches; the stream is idle before each.
enum class GraphFigure : uint8_t {
  builder_launch,    // GraphBuilder: declaring three buffers and every launch()
  builder_finish,    // GraphBuilder::finish: edges derived and checked
  driver_add,        // checks of the plan, cuGraphCreate, every cuGraphAddNode with its edges
  build,             // the three together
  instantiate,       // cuGraphInstantiateWithParams, of programmatic edges as what stands above
  upload,            // cuGraphUpload until the stream is idle
  instantiate_full,  // as above, of full edges
  capture,           // of the eager launches of the same plan, programmatic
  capture_instantiate,
  capture_upload,        // cuGraphUpload alone
  first_launch,          // explicit, programmatic: the first launch of an uploaded graph
  launch_explicit,       // explicit, programmatic
  launch_explicit_full,  // explicit, full
  launch_captured,       // captured, programmatic
  submit_eager,          // the stream launches of a whole plan, programmatic
  gpu_eager_full,        // between two events, launches back to back
  gpu_eager,
  gpu_captured_full,
  gpu_captured,
  gpu_explicit_full,
  gpu_explicit,
  patch_first,  // one argument of a node never patched before
  patch_one,    // one argument of one node
  launch_after_one,
  patch_tenth,  // one argument of every tenth node, as one PatchSet
  launch_after_tenth,
  patch_all,  // one argument of every node, as one PatchSet
  launch_after_all,
  recapture,  // of the same nodes with another argument
  update,     // cuGraphExecUpdate with the graph captured anew
  launch_after_update,
  update_plan,         // ExplicitGraph::update with a plan of the same nodes and another argument
  update_plan_driver,  // the driver's own calls for that: a CUgraph of all nodes and cuGraphExecUpdate
  launch_after_update_plan,
  patch_kernel,  // the kernel of one node: another variant of the same argument struct
  loop_full,     // GPU time of one round of a WHILE node around the nodes and the kernel that sets its condition
  loop,
  foreign_launch,  // of a chain of foreign kernels, as builder_launch, driver_add, build, gpu_explicit_full and
                   // patch_one
  foreign_add,
  foreign_build,
  gpu_foreign_full,
  patch_foreign_one,
  kCount
};
std::string_view to_string(GraphFigure figure);

// What is built and launched: `nodes` kernels of one width in one shape.
struct GraphCase {
  GraphShape shape = GraphShape::chain;
  KernelWidth width = KernelWidth::tiny;
  int nodes = 1;
};

struct GraphBenchOptions {
  int repetitions = 15;        // of each figure; medians are reported
  int nodes_a_sample = 10000;  // run between two events, as often as it takes
};

struct GraphBenchLine {
  GraphCase measured_case;
  size_t edges = 0, programmatic_edges = 0;
  size_t core_moves = 0;  // to a core that was not slowed by others
  std::array<Spread, static_cast<size_t>(GraphFigure::kCount)> us{};
  std::array<bool, static_cast<size_t>(GraphFigure::kCount)> measured{};
  std::string update_problem;  // why a graph captured anew could not update another; its three figures are missing then
  const Spread& operator[](GraphFigure figure) const { return us[static_cast<size_t>(figure)]; }
  bool has(GraphFigure figure) const { return measured[static_cast<size_t>(figure)]; }
};

// What the very first build of the process took: the driver and the allocator have seen no graph yet.
struct FirstBuild {
  int nodes = 0;
  double builder_launch_us = 0, builder_finish_us = 0, driver_add_us = 0, instantiate_us = 0, upload_us = 0,
         first_launch_us = 0;
};
FirstBuild first_build(Device& device, const Stream& stream, KernelCache& kernels, int nodes);

// Graphs that are only there to take memory.
using KeptGraphs = std::vector<std::unique_ptr<ExplicitGraph>>;

// Device memory that one of many like graphs takes, in bytes, uploaded: adds graphs of `plan` to `kept`, at most
// `most`. The driver's free memory falls in steps of 2 MiB, so graphs are added until several steps lie between the
// first and the last, and what those before the first took does not count. Memory of a destroyed graph is kept by the
// driver for later ones: `kept` must live until the last such measurement. 0 when free memory does not fall.
double bytes_per_exec(const Device& device, const Stream& stream, const Plan& plan, int most, KeptGraphs& kept);
double bytes_per_exec(Device& device, const Stream& stream, KernelCache& kernels, const GraphCase& measured, int most,
                      KeptGraphs& kept);

// Throws Error when two ways of running a plan leave different values.
GraphBenchLine bench_graph(Device& device, const Stream& stream, KernelCache& kernels, const GraphCase& measured,
                           const GraphBenchOptions& options);

}  // namespace nodewright
