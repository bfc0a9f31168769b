#include "graph/run/piecewise_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/edges/allocated_memory.h"
#include "graph/run/eager_run.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

Plan part_of(const Plan& plan, uint32_t first, uint32_t end, size_t number) {
  Plan part;
  part.name = plan.name + "." + std::to_string(number);
  part.facts = plan.facts;
  part.device = plan.device;
  part.buffers = plan.buffers;
  for (uint32_t i = first; i < end; ++i) {
    part.nodes.push_back(plan.nodes[i]);
    part.nodes.back().id = i - first;
  }
  for (const Edge& edge : plan.edges) {
    if (edge.from < first || edge.to >= end) continue;
    part.edges.push_back(edge);
    part.edges.back().from -= first;
    part.edges.back().to -= first;
  }
  return part;
}

}  // namespace

std::vector<PlanPart> parts_of(const Plan& plan, const std::function<bool(const PlanNode&)>& apart) {
  if (!plan.conditions.empty())
    throw Error({.doing = "cut into parts",
                 .object = plan.name,
                 .detail = "it has conditional nodes",
                 .advice = "run it as one graph"});
  if (const PlanNode* allocation = first_allocation(plan))
    throw Error({.doing = "cut into parts",
                 .object = plan.name,
                 .detail = fmt::format("node '{}' allocates memory, which lives in one graph", allocation->name),
                 .advice = "run it as one graph"});
  std::vector<PlanPart> parts;
  const auto count = static_cast<uint32_t>(plan.nodes.size());
  for (uint32_t first = 0, end = 0; first < count; first = end) {
    const bool is_apart = apart(plan.nodes[first]);
    for (end = first + 1; end < count && apart(plan.nodes[end]) == is_apart;) ++end;
    parts.push_back({part_of(plan, first, end, parts.size()), is_apart});
  }
  return parts;
}

PiecewiseRun::PiecewiseRun(const Plan& plan, const std::function<bool(const PlanNode&)>& apart, const Stream& stream)
    : stream_(stream) {
  for (PlanPart& part : parts_of(plan, apart)) {
    check_plan(part.plan);
    if (part.apart)
      parts_.emplace_back(std::move(part.plan));
    else
      std::get<ExplicitGraph>(parts_.emplace_back(ExplicitGraph(std::move(part.plan)))).upload(stream);
  }
}

void PiecewiseRun::launch() {
  for (auto& part : parts_) {
    if (const Plan* plan = std::get_if<Plan>(&part)) run_eager(*plan, stream_);
    if (ExplicitGraph* graph = std::get_if<ExplicitGraph>(&part)) graph->launch(stream_);
  }
}

size_t PiecewiseRun::graphs() const {
  return static_cast<size_t>(
      std::ranges::count_if(parts_, [](const auto& part) { return std::holds_alternative<ExplicitGraph>(part); }));
}

}  // namespace nodewright
