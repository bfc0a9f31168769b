#include "bench/graph/scale_bench.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

#include "bench/graph/driver_graph.h"
#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/graph_exec.h"
#include "graph/nodes/graph_handle.h"

namespace nodewright {
namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Function>
double processor_seconds_of(const Function& f) {
  const double begin = processor_seconds();
  f();
  return processor_seconds() - begin;
}

template <class Function>
double wall_seconds_of(const Function& f) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

uint64_t heap_in_use() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

size_t nodes_of(const Plan& plan) {
  size_t nodes = plan.nodes.size();
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) nodes += nodes_of(*body);
  return nodes;
}

}  // namespace

std::string scale_heading() {
  return fmt::format("{:14} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>11} {:>8}\n", "us a node", "nodes",
                     "edges", "add", "finish", "bytes", "text", "json", "diff", "instantiate", "driver");
}

std::string describe(const ScaleLine& line) {
  const auto us = [&](double seconds) { return 1e6 * seconds / static_cast<double>(line.nodes); };
  const auto optional_us = [&](const std::optional<double>& seconds) {
    return seconds ? fmt::format("{:.3f}", us(*seconds)) : std::string("-");
  };
  return fmt::format("{:14} {:7} {:7} {:8.3f} {:8.3f} {:8.0f} {:8.3f} {:8.3f} {:8.3f} {:>11} {:>8}\n",
                     to_string(line.shape), line.nodes, line.edges, us(line.add), us(line.finish),
                     static_cast<double>(line.heap_bytes) / static_cast<double>(line.nodes), us(line.text),
                     us(line.json), us(line.diff), optional_us(line.instantiate), optional_us(line.driver));
}

ScaleLine measure_scale(Device& device, const ScaledPlans& plans, ScaledShape shape, size_t nodes,
                        const ScaleOptions& options) {
  ScaleLine line{.shape = shape};
  const uint64_t before = heap_in_use();
  std::optional<Plan> plan;
  {
    GraphBuilder g(device, "scaled");
    line.add = processor_seconds_of([&] { plans.add_to(g, shape, nodes); });
    line.finish = processor_seconds_of([&] { plan.emplace(std::move(g).finish()); });
  }
  const uint64_t after = heap_in_use();
  line.heap_bytes = after > before ? after - before : 0;
  line.nodes = nodes_of(*plan);
  line.edges = plan->edges.size();
  if (options.dumps) {
    line.text = processor_seconds_of([&] { to_text(*plan); });
    line.json = processor_seconds_of([&] { to_json(*plan); });
    Plan other = *plan;
    other.nodes.back().traffic.bytes_read += 1;
    line.diff = processor_seconds_of([&] { diff_plans(*plan, other); });
  }
  const bool fills =
      std::ranges::any_of(plan->nodes, [](const PlanNode& node) { return node.kind == NodeKind::memset; });
  if (line.nodes > options.most_instantiated || fills) return line;  // a fill's address is checked by the driver
  const bool kernels_only =
      std::ranges::all_of(plan->nodes, [](const PlanNode& node) { return node.kind == NodeKind::kernel; });
  if (kernels_only)
    line.driver = wall_seconds_of([&] {
      const GraphHandle graph = graph_by_driver(*plan);
      instantiate(plan->device->driver(), graph.get(), plan->name, [&](CUgraphNode) { return plan->name; });
    });
  Plan copy = *plan;
  line.instantiate = wall_seconds_of([&] { const ExplicitGraph graph(std::move(copy)); });
  return line;
}

}  // namespace nodewright
