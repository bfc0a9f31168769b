// A run keeps the body it started with, so patches reach the next launch only.
#include "cpu_driver/graphs/graph_exec.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

bool same_edges(const ExecNode& a, const ExecNode& b) {
  return a.after == b.after && a.edges.size() == b.edges.size() &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(),
                    [](const auto& x, const auto& y) { return memcmp(&x, &y, sizeof x) == 0; });
}

// cuGraphExecUpdate in cuda.h: a node does not become cooperative, nor the reverse, and keeps a priority that counts.
bool same_attributes(const KernelWork* a, const KernelWork* b, uint64_t flags) {
  if (a == nullptr) return true;
  const bool priorities_count = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  return a->attributes.cooperative == b->attributes.cooperative &&
         (!priorities_count || a->attributes.priority == b->attributes.priority);
}

bool same_rows(const Work& a, const Work& b) {
  const auto *x = std::get_if<FillWork>(&a.what), *y = std::get_if<FillWork>(&b.what);
  return x == nullptr || may_become(x->fill, y->fill);
}

// cuGraphExecUpdate in cuda.h, and NVIDIA's driver to the letter (H200, 580.159.04): of copies, one-dimensional ones
// alone may change.
bool same_boxes(const Work& a, const Work& b) {
  const auto *x = std::get_if<CopyWork>(&a.what), *y = std::get_if<CopyWork>(&b.what);
  if (x == nullptr) return true;
  const auto is_flat = [](const CUDA_MEMCPY3D& copy) { return copy.Height == 1 && copy.Depth == 1; };
  return (is_flat(x->copy) && is_flat(y->copy)) || memcmp(&x->copy, &y->copy, sizeof x->copy) == 0;
}

// What an update refuses of a node that stays of its type.
CUgraphExecUpdateResult problem_of(const Work& now, const Work& next, uint64_t flags) {
  const auto *a = std::get_if<KernelWork>(&now.what), *b = std::get_if<KernelWork>(&next.what);
  if (a != nullptr && (a->device != b->device || a->green != b->green))
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  if (!same_attributes(a, b, flags)) return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  if (!same_rows(now, next) || !same_boxes(now, next)) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// cuGraphExecUpdate in cuda.h: the parameters of a conditional node may not change.
bool same_condition(const ExecNode& a, const ExecNode& b) {
  const auto* x = std::get_if<ConditionalWork>(&a.work.what);
  const auto* y = std::get_if<ConditionalWork>(&b.work.what);
  return x == nullptr || (x->condition == y->condition && x->type == y->type && a.inner.size() == b.inner.size());
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

bool may_become(const Work& now, const Work& next, uint64_t flags) {
  return problem_of(now, next, flags) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

UpdateProblem compare_for_update(const GraphBody& now, const GraphBody& next, uint64_t flags) {
  if (now.nodes.size() != next.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0};
  for (size_t i = 0; i < now.nodes.size(); ++i) {
    const ExecNode &a = now.nodes[i], &b = next.nodes[i];
    if (a.type != b.type) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, i};
    if (!same_edges(a, b)) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, i};
    const CUgraphExecUpdateResult problem = problem_of(a.work, b.work, flags);
    if (problem != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {problem, i};
    if (!same_condition(a, b)) return {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, i};
    for (size_t k = 0; k < a.inner.size(); ++k) {
      const UpdateProblem inner = compare_for_update(*a.inner[k], *b.inner[k], flags);
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
  body->kept = graph.kept;
  std::unordered_map<const GraphNode*, uint32_t> index;
  for (const auto& node : graph.nodes) index[node.get()] = static_cast<uint32_t>(index.size());
  body->nodes.resize(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    ExecNode& copy = body->nodes[index[node.get()]];
    copy.id = node->id;
    copy.type = node->type;
    copy.work = node->work;
    for (const auto& inner : inner_graphs(node->work)) copy.inner.push_back(make_body(*inner));
    for (const GraphEdge& edge : node->in) {
      copy.after.push_back(index[edge.from]);
      copy.edges.push_back(edge.data);
      body->nodes[index[edge.from]].before.push_back(index[node.get()]);
    }
  }
  return body;
}

std::vector<std::shared_ptr<Conditional>> conditionals_in(const Graph& graph) {
  std::vector<std::shared_ptr<Conditional>> all = graph.conditionals;
  for (const auto& node : graph.nodes)
    for (const auto& inner : inner_graphs(node->work)) {
      const auto more = conditionals_in(*inner);
      all.insert(all.end(), more.begin(), more.end());
    }
  return all;
}

bool all_loaded(const GraphBody& body) {
  bool all = true;
  for_each_node(body, [&](const ExecNode& node) {
    const auto* kernel = std::get_if<KernelWork>(&node.work.what);
    all &= kernel == nullptr || !kernel->loaded->unloaded;
  });
  return all;
}

}  // namespace nodewright::cpu
