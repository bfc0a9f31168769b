// A run keeps the body it started with, so patches reach the next launch only.
#include "runtime/cpu_driver/graph_exec.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

void keep_argument_pointers(GraphBody& body) {
  for (ExecNode& node : body.nodes)
    if (auto* kernel = std::get_if<KernelWork>(&node.work.what)) kernel->params[0] = kernel->args.data();
}

}  // namespace

GraphBody& GraphExec::writable() {
  if (body.use_count() > 1) {
    auto copy = std::make_shared<GraphBody>(*body);
    keep_argument_pointers(*copy);
    body = std::move(copy);
  }
  return const_cast<GraphBody&>(*body);  // made by make_body or above, never const
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
    if (const auto* child = std::get_if<ChildWork>(&node->work.what)) copy.child = make_body(*child->graph);
    for (const GraphEdge& edge : node->in) {
      copy.after.push_back(index[edge.from]);
      copy.edges.push_back(edge.data);
      body->nodes[index[edge.from]].before.push_back(index[node.get()]);
    }
  }
  keep_argument_pointers(*body);
  return body;
}

bool all_loaded(const GraphBody& body) {
  return std::all_of(body.nodes.begin(), body.nodes.end(), [](const ExecNode& node) {
    if (node.child != nullptr) return all_loaded(*node.child);
    const auto* kernel = std::get_if<KernelWork>(&node.work.what);
    return kernel == nullptr || !kernel->loaded->unloaded;
  });
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
  if (node.enabled && node.child != nullptr) {
    GraphRun child(state_, node.child);
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
