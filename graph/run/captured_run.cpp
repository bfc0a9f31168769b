#include "graph/run/captured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/edges/allocated_memory.h"
#include "graph/nodes/held_nodes.h"
#include "graph/nodes/instantiate_rules.h"
#include "graph/nodes/kept_objects.h"
#include "graph/nodes/node_parameters.h"
#include "graph/run/eager_run.h"
#include "graph/run/stream_check.h"
#include "graph/timing/stopwatch.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// Ends a capture that failed: a stream left capturing would be of no further use. `into`: a graph of the caller's.
void abandon_capture(const Driver& driver, CUstream stream, CUgraph into) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  CUgraph graph = nullptr;
  driver.cuStreamEndCapture(stream, &graph);
  const GraphHandle partial(driver, graph == into ? nullptr : graph);
}

bool calls_libraries(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
    return node.kind == NodeKind::library ||
           std::any_of(node.bodies.begin(), node.bodies.end(), [](const auto& body) { return calls_libraries(*body); });
  });
}

// At its first use a library loads its kernels, which a stricter mode forbids.
CUstreamCaptureMode mode_of(const Plan& plan) {
  return calls_libraries(plan) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
}

// What the stream captures until the end of the plan. `into`: the caller's graph that it began with, or null.
CUgraph record(const Plan& plan, const Stream& stream, CUgraph into) {
  const Driver& driver = stream.device().driver();
  try {
    run_eager(plan, stream);
    CUgraph graph = nullptr;
    driver.check(driver.cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture", "capture plan", plan.name);
    return graph;
  } catch (...) {
    abandon_capture(driver, stream.get(), into);
    throw;
  }
}

GraphHandle capture(const Plan& plan, const Stream& stream) {
  check_stream(plan, stream, "capture plan");
  const Driver& driver = stream.device().driver();
  driver.check(driver.cuStreamBeginCapture(stream.get(), mode_of(plan)), "cuStreamBeginCapture", "capture plan",
               plan.name);
  return GraphHandle(driver, record(plan, stream, nullptr));
}

// The nodes that leave one in the graph, or several (a library's), in the order of the stream.
void add_captured(const Plan& plan, std::vector<const PlanNode*>& nodes) {
  for (const PlanNode& node : plan.nodes) {
    if (node.kind == NodeKind::child)
      add_captured(*node.bodies[0], nodes);
    else if (node.kind != NodeKind::empty)
      nodes.push_back(&node);
  }
}

// Whose node each of the chain is, of another plan as far as both go. A library's calls leave any number of nodes:
// between two of them nobody can tell.
std::map<CUgraphNode, const PlanNode*> owners_of(const Plan& plan, const std::vector<CUgraphNode>& chain) {
  std::vector<const PlanNode*> nodes;
  add_captured(plan, nodes);
  const auto leaves_many = [](const PlanNode* node) {
    return node->kind == NodeKind::library && node->host == nullptr;
  };
  const auto first = std::find_if(nodes.begin(), nodes.end(), leaves_many);
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(), leaves_many).base();  // the one after it
  const auto before = static_cast<size_t>(first - nodes.begin());
  const auto after = first == nodes.end() ? 0 : static_cast<size_t>(nodes.end() - last);
  std::map<CUgraphNode, const PlanNode*> owners;
  for (size_t i = 0; i < std::min(before, chain.size()); ++i) owners[chain[i]] = nodes[i];
  if (chain.size() < before + after) return owners;
  for (size_t i = 0; i < after; ++i) owners[chain[chain.size() - 1 - i]] = nodes[nodes.size() - 1 - i];
  if (first != nodes.end() && last - first == 1)
    for (size_t i = before; i < chain.size() - after; ++i) owners[chain[i]] = *first;
  return owners;
}

// What the driver's callback needs, and what came of it.
struct Changes {
  const OnRecaptureChange& on_change;
  std::map<CUgraphNode, const PlanNode*> owners;
  bool ended = false;
  std::exception_ptr thrown = nullptr;
};

CUresult CUDA_CB note_change(void* data, CUgraphNode node, const CUgraphNodeParams* before,
                             const CUgraphNodeParams* after, RecaptureStatus status) noexcept {
  auto& changes = *static_cast<Changes*>(data);
  if (status == kRecaptureError) return CUDA_SUCCESS;  // the call that captures the node says it
  const auto owner = changes.owners.find(node);
  try {
    const PlanNode* named = owner == changes.owners.end() ? nullptr : owner->second;
    changes.ended = !changes.on_change(recapture_change(named, *before, *after, status == kRecaptureEligible));
  } catch (...) {
    changes.thrown = std::current_exception();
  }
  return changes.ended || changes.thrown != nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void check_capturable(const Plan& plan) {
  check_plan(plan);
  refuse_left_memory(plan, "capture plan");
  for (const PlanNode& node : plan.nodes) {
    if (node.kind == NodeKind::conditional)
      throw Error({.doing = "capture plan",
                   .object = plan.name,
                   .detail = fmt::format(
                       "node '{}' is conditional: stream capture would have to wait for its condition", node.name),
                   .advice = "run the plan explicitly or eagerly"});
    if (node.kind == NodeKind::library && node.library->graph != nullptr)
      throw Error({.doing = "capture plan",
                   .object = plan.name,
                   .detail = fmt::format("node '{}' is a graph that was built elsewhere", node.name),
                   .advice = "run the plan explicitly or eagerly"});
  }
}

[[noreturn]] void refuse_reading(const Plan& plan, std::string detail) {
  throw Error({.doing = "read the captured graph of plan",
               .object = plan.name,
               .detail = std::move(detail),
               .advice = "dump the plan as it is, not its captured run"});
}

// The captured nodes in the order of the stream, which is that of the plan: one stream makes a chain. Nothing for
// another graph: a library may fork.
std::optional<std::vector<CUgraphNode>> chain_of(const Plan& plan, const Driver& driver, CUgraph graph,
                                                 const std::vector<HeldEdge>& edges) {
  const std::vector<CUgraphNode> held = held_nodes(driver, graph, plan.name);
  std::vector<CUgraphNode> chain;
  std::map<CUgraphNode, CUgraphNode> next;
  for (const HeldEdge& edge : edges) next.emplace(edge.from, edge.to);
  const auto is_first = [&](CUgraphNode node) { return std::ranges::find(edges, node, &HeldEdge::to) == edges.end(); };
  if (const auto first = std::ranges::find_if(held, is_first); first != held.end()) chain.push_back(*first);
  while (!chain.empty() && next.contains(chain.back())) chain.push_back(next.at(chain.back()));
  if (chain.size() != held.size() || edges.size() + 1 != std::max<size_t>(held.size(), 1)) return std::nullopt;
  return chain;
}

}  // namespace

CapturedGraph::CapturedGraph(const Plan& plan, const Stream& stream)
    : name_(plan.name),
      device_(plan.device),
      driver_(&stream.device().driver()),
      graph_(*driver_),
      exec_(*driver_),
      host_calls_(stream.device()) {
  check_capturable(plan);
  const ContextGuard current(stream.device());
  host_calls_.add(plan);
  Stopwatch watch;
  graph_ = capture(plan, stream);
  KeptObjects(*driver_).retain(plan, graph_.get(), KeptInside::bodies_and_children);
  stats_.capture_ms = watch.lap_ms();
  exec_ = instantiate(*driver_, graph_.get(), name_, [](CUgraphNode) { return "captured, without a name"; },
                      {instantiation_flags(plan)});
  stats_.instantiate_ms = watch.lap_ms();
  driver_->check(driver_->cuGraphUpload(exec_.get(), stream.get()), "cuGraphUpload", "upload graph", name_);
  stats_.upload_ms = watch.lap_ms();
}

void CapturedGraph::refuse_recapture(const Plan& plan) const {
  check_capturable(plan);
  if (const PlanNode* allocation = first_allocation(plan))
    throw Error({.doing = "update captured graph",
                 .object = name_,
                 .detail = fmt::format("node '{}' allocates memory, whose address a graph keeps", allocation->name),
                 .advice = "capture the plan in a graph of its own"});
}

void CapturedGraph::recapture(const Plan& plan, const Stream& stream) {
  refuse_recapture(plan);
  const ContextGuard current(stream.device());
  host_calls_.add(plan);
  Stopwatch watch;
  GraphHandle graph = capture(plan, stream);
  stats_.capture_ms = watch.lap_ms();
  update_to(std::move(graph), plan);
}

bool CapturedGraph::recapture(const Plan& plan, const Stream& stream, const OnRecaptureChange& on_change) {
  if (!on_change) {
    recapture(plan, stream);
    return true;
  }
  refuse_recapture(plan);
  check_stream(plan, stream, "capture plan");
  if (!driver_->cuStreamBeginRecaptureToGraph)
    throw Error({.doing = "update captured graph",
                 .object = name_,
                 .detail = "the driver has no cuStreamBeginRecaptureToGraph, which tells what changes (CUDA 13.3)",
                 .advice = "recapture without a function for changes"});
  const ContextGuard current(stream.device());
  host_calls_.add(plan);
  Stopwatch watch;
  CUgraph copy = nullptr;
  driver_->check(driver_->cuGraphClone(&copy, graph_.get()), "cuGraphClone", "update captured graph", name_);
  GraphHandle graph(*driver_, copy);  // a recapture that fails leaves it undefined
  Changes changes{on_change, {}};
  if (const auto chain = chain_of(plan, *driver_, copy, held_edges(*driver_, copy, name_)))
    changes.owners = owners_of(plan, *chain);
  driver_->check(driver_->cuStreamBeginRecaptureToGraph(stream.get(), mode_of(plan), copy, note_change, &changes),
                 "cuStreamBeginRecaptureToGraph", "capture plan", plan.name);
  try {
    record(plan, stream, copy);
  } catch (const Error&) {
    if (changes.thrown != nullptr) std::rethrow_exception(changes.thrown);
    if (changes.ended) return false;
    throw;
  }
  stats_.capture_ms = watch.lap_ms();
  update_to(std::move(graph), plan);
  return true;
}

void CapturedGraph::update_to(GraphHandle graph, const Plan& plan) {
  KeptObjects(*driver_).retain(plan, graph.get(), KeptInside::bodies_and_children);
  Stopwatch watch;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = driver_->cuGraphExecUpdate(exec_.get(), graph.get(), &info);
  if (result != CUDA_SUCCESS) {
    std::map<CUgraphNode, const PlanNode*> owners;
    if (const auto chain = chain_of(plan, *driver_, graph.get(), held_edges(*driver_, graph.get(), name_)))
      owners = owners_of(plan, *chain);
    const auto owner = owners.find(info.errorNode);
    driver_->check(result, "cuGraphExecUpdate", "update captured graph", name_,
                   fmt::format("{}{}; the graph is as before",
                               owner == owners.end() ? "" : fmt::format("node '{}': ", owner->second->name),
                               words_for(info.result)),
                   "capture the plan in a graph of its own");
  }
  stats_.update_ms = watch.lap_ms();
  graph_ = std::move(graph);
}

Plan plan_as_captured(const Plan& plan, const Stream& stream) {
  check_capturable(plan);
  const ContextGuard current(stream.device());
  Plan captured = plan;
  std::erase_if(captured.nodes, [](const PlanNode& node) { return node.kind == NodeKind::empty; });
  for (uint32_t id = 0; id < captured.nodes.size(); ++id) {
    PlanNode& node = captured.nodes[id];
    if (node.kind == NodeKind::child || (node.kind == NodeKind::library && node.host == nullptr))
      refuse_reading(plan,
                     fmt::format("node '{}' is a {}, and may be several nodes there", node.name, to_string(node.kind)));
    node.id = id;
  }
  const GraphHandle graph = capture(plan, stream);
  const Driver& driver = stream.device().driver();
  const std::vector<HeldEdge> edges = held_edges(driver, graph.get(), plan.name);
  const auto found = chain_of(plan, driver, graph.get(), edges);
  if (!found) refuse_reading(plan, fmt::format("its nodes and {} edges are no chain", edges.size()));
  const std::vector<CUgraphNode>& chain = *found;
  if (chain.size() != captured.nodes.size())
    refuse_reading(plan, fmt::format("it has {} nodes, and the plan {}", chain.size(), captured.nodes.size()));
  std::map<CUgraphNode, EdgeType> type_into;
  for (const HeldEdge& edge : edges) type_into[edge.to] = edge_of(edge.data).type;
  captured.edges.clear();
  for (uint32_t id = 1; id < chain.size(); ++id)
    captured.edges.push_back({id - 1, id, type_into.at(chain[id]), {Reason{.hazard = Hazard::serial}}});
  return captured;
}

void CapturedGraph::launch(const Stream& stream) {
  check_stream(*device_, name_, stream, "launch graph");
  const ContextGuard current(stream.device());
  host_calls_.before_launch();
  driver_->check(driver_->cuGraphLaunch(exec_.get(), stream.get()), "cuGraphLaunch", "launch graph", name_);
}

}  // namespace nodewright
