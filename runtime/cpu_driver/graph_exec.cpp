// A run keeps the body it started with, so patches reach the next launch only.
#include "runtime/cpu_driver/graph_exec.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime/cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

bool same_edges(const ExecNode& a, const ExecNode& b) {
  return a.after == b.after && a.edges.size() == b.edges.size() &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(),
                    [](const auto& x, const auto& y) { return memcmp(&x, &y, sizeof x) == 0; });
}

// What may be changed through a pointer to const: bodies are made by make_body or by this, never const.
GraphBody& own(std::shared_ptr<const GraphBody>& body) {
  if (body.use_count() > 1) body = std::make_shared<GraphBody>(*body);
  return const_cast<GraphBody&>(*body);
}

}  // namespace

const ExecNode& GraphExec::at(const ExecPlace& place) const {
  const GraphBody* in = body.get();
  for (size_t i = 0; i + 1 < place.size(); ++i) in = in->nodes[place[i].node].inner[place[i].inner].get();
  return in->nodes[place.back().node];
}

ExecNode& GraphExec::change(const ExecPlace& place) {
  GraphBody* in = &own(body);
  for (size_t i = 0; i + 1 < place.size(); ++i) in = &own(in->nodes[place[i].node].inner[place[i].inner]);
  return in->nodes[place.back().node];
}

bool find_place(const GraphBody& body, uint64_t id, ExecPlace& place) {
  for (uint32_t i = 0; i < body.nodes.size(); ++i) {
    const ExecNode& node = body.nodes[i];
    place.push_back({i, 0});
    if (node.id == id) return true;
    for (uint32_t k = 0; k < node.inner.size(); ++k) {
      place.back().inner = k;
      if (find_place(*node.inner[k], id, place)) return true;
    }
    place.pop_back();
  }
  return false;
}

UpdateProblem compare_for_update(const GraphBody& now, const GraphBody& next) {
  if (now.nodes.size() != next.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0};
  for (size_t i = 0; i < now.nodes.size(); ++i) {
    const ExecNode &a = now.nodes[i], &b = next.nodes[i];
    if (a.type != b.type) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, i};
    if (!same_edges(a, b)) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, i};
    const auto* kernel_a = std::get_if<KernelWork>(&a.work.what);
    const auto* kernel_b = std::get_if<KernelWork>(&b.work.what);
    if (kernel_a != nullptr && kernel_a->loaded != kernel_b->loaded)
      return {CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, i};
    if (a.inner.size() != b.inner.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, i};
    for (size_t k = 0; k < a.inner.size(); ++k) {
      const UpdateProblem inner = compare_for_update(*a.inner[k], *b.inner[k]);
      if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {inner.result, i};
    }
  }
  return {};
}

void keep_identity(const GraphBody& now, GraphBody& next) {
  for (size_t i = 0; i < next.nodes.size(); ++i) {
    next.nodes[i].id = now.nodes[i].id;
    next.nodes[i].enabled = now.nodes[i].enabled;
    for (size_t k = 0; k < next.nodes[i].inner.size(); ++k)
      keep_identity(*now.nodes[i].inner[k], own(next.nodes[i].inner[k]));
  }
}

std::shared_ptr<GraphBody> make_body(const Graph& graph) {
  auto body = std::make_shared<GraphBody>();
  std::unordered_map<const GraphNode*, uint32_t> index;
  for (const auto& node : graph.nodes) index[node.get()] = static_cast<uint32_t>(index.size());
  body->nodes.resize(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    ExecNode& copy = body->nodes[index[node.get()]];
    copy.id = node->id;
    copy.type = node->type;
    copy.work = node->work;
    if (const auto* child = std::get_if<ChildWork>(&node->work.what)) copy.inner = {make_body(*child->graph)};
    for (const GraphEdge& edge : node->in) {
      copy.after.push_back(index[edge.from]);
      copy.edges.push_back(edge.data);
      body->nodes[index[edge.from]].before.push_back(index[node.get()]);
    }
  }
  return body;
}

bool all_loaded(const GraphBody& body) {
  bool all = true;
  for_each_node(body, [&](const ExecNode& node) {
    const auto* kernel = std::get_if<KernelWork>(&node.work.what);
    all &= kernel == nullptr || !kernel->loaded->unloaded;
  });
  return all;
}

GraphRun::GraphRun(State& state, std::shared_ptr<const GraphBody> body)
    : state_(state),
      body_(std::move(body)),
      left_(body_->nodes.size()),
      random_((state.options.seed + ++state.launches) * 0x9e3779b97f4a7c15ull | 1) {
  missing_.reserve(left_);
  for (uint32_t i = 0; i < left_; ++i) {
    missing_.push_back(static_cast<uint32_t>(body_->nodes[i].after.size()));
    if (missing_[i] == 0) ready_.push_back(i);
  }
}

size_t GraphRun::choose() {
  switch (state_.options.schedule) {
    case CpuSchedule::forward:
      return 0;
    case CpuSchedule::reverse:
      return ready_.size() - 1;
    default:
      random_ ^= random_ << 13;
      random_ ^= random_ >> 7;
      random_ ^= random_ << 17;
      return random_ % ready_.size();
  }
}

bool GraphRun::step(std::unique_lock<std::mutex>& lock, WorkerPool& pool) {
  if (ready_.empty()) return true;
  const size_t place = choose();
  const uint32_t index = ready_[place];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(place));
  const ExecNode& node = body_->nodes[index];
  if (node.enabled && !node.inner.empty()) {
    GraphRun child(state_, node.inner.front());
    while (!child.step(lock, pool) && state_.sticky == CUDA_SUCCESS) {
    }
  } else if (node.enabled) {
    // Runs never change a node's work: copies of a graph have neither staging nor poison.
    run_work(state_, lock, pool, const_cast<Work&>(node.work));
  }
  for (const uint32_t next : node.before)
    if (--missing_[next] == 0) ready_.insert(std::upper_bound(ready_.begin(), ready_.end(), next), next);
  return --left_ == 0;
}

}  // namespace nodewright::cpu
