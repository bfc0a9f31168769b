// Entry points: executable graphs.
#include <algorithm>
#include <cstring>

#include "runtime/cpu_driver/capture.h"
#include "runtime/cpu_driver/driver_state.h"
#include "runtime/cpu_driver/graph_exec.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

CUresult no_exec() { return refuse(CUDA_ERROR_INVALID_HANDLE, "no such executable graph: never made, or destroyed"); }

// The place in the exec of a node of the graph it was made from.
CUresult find_exec_node(State& s, CUgraphExec exec_handle, CUgraphNode node_handle, std::shared_ptr<GraphExec>& exec,
                        size_t& index) {
  exec = s.execs.find(exec_handle);
  if (exec == nullptr) return no_exec();
  const auto node = s.nodes.find(node_handle);
  if (node == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such node");
  const auto& nodes = exec->body->nodes;
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const ExecNode& n) { return n.id == node->id; });
  if (found == nodes.end())
    return refuse(CUDA_ERROR_INVALID_VALUE, "the node was not in the graph when it was instantiated");
  index = static_cast<size_t>(found - nodes.begin());
  return CUDA_SUCCESS;
}

CUresult wrong_type() { return refuse(CUDA_ERROR_INVALID_VALUE, "the node is of another type"); }

void wait_nodes(const GraphBody& body, std::vector<CompletionRef>& after) {
  for (const ExecNode& node : body.nodes) {
    if (node.child != nullptr) wait_nodes(*node.child, after);
    const auto* wait = std::get_if<WaitWork>(&node.work.what);
    if (wait != nullptr && wait->event->recorded != nullptr) after.push_back(wait->event->recorded);
  }
}

bool same_edges(const ExecNode& a, const ExecNode& b) {
  return a.after == b.after && a.edges.size() == b.edges.size() &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(),
                    [](const auto& x, const auto& y) { return memcmp(&x, &y, sizeof x) == 0; });
}

struct UpdateProblem {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  size_t node = 0;
};

// Stricter than NVIDIA's driver: the same kernels in the same order of addition with the same edges.
UpdateProblem compare(const GraphBody& now, const GraphBody& next) {
  if (now.nodes.size() != next.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0};
  for (size_t i = 0; i < now.nodes.size(); ++i) {
    const ExecNode &a = now.nodes[i], &b = next.nodes[i];
    if (a.type != b.type) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, i};
    if (!same_edges(a, b)) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, i};
    const auto* kernel_a = std::get_if<KernelWork>(&a.work.what);
    const auto* kernel_b = std::get_if<KernelWork>(&b.work.what);
    if (kernel_a != nullptr && kernel_a->loaded != kernel_b->loaded)
      return {CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, i};
    if (a.child != nullptr) {
      const UpdateProblem inner = compare(*a.child, *b.child);
      if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return {inner.result, i};
    }
  }
  return {};
}

}  // namespace

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = nullptr;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    constexpr uint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if ((params->flags & ~kKnown) != 0)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "instantiation flags on the CPU driver");
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the graph");
    if (const GraphNode* node = find_cycle(*graph); node != nullptr) {
      params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
      params->hErrNode_out = node->handle;
      return refuse(CUDA_ERROR_INVALID_VALUE, "the graph has a cycle");
    }
    auto exec = std::make_shared<GraphExec>();
    exec->body = make_body(*graph);
    if (!all_loaded(*exec->body)) return refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of the graph was unloaded");
    *out = exec->handle = s.execs.add(exec);
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return enter(Needs::context, [&](State& s, Lock&) {
    if (s.execs.find(exec) == nullptr) return no_exec();
    if (stream != nullptr && s.streams.find(stream) == nullptr)
      return refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto exec = s.execs.find(handle);
    if (exec == nullptr) return no_exec();
    const auto stream = stream_handle == nullptr ? s.null_stream : s.streams.find(stream_handle);
    if (stream == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->capture != nullptr)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "launching a graph into a capture on the CPU driver");
    if (!all_loaded(*exec->body)) return refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of the graph was unloaded");
    Operation operation;
    if (exec->last_run != nullptr && !exec->last_run->done) operation.after.push_back(exec->last_run);
    wait_nodes(*exec->body, operation.after);
    operation.run = std::make_shared<GraphRun>(s, exec->body);
    exec->last_run = s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

// Runs under way keep what they need.
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  return enter_release([&](State& s, Lock&) { return s.execs.take(handle) != nullptr ? CUDA_SUCCESS : no_exec(); });
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* params) {
  return enter(Needs::context, [&](State& s, Lock&) {
    std::shared_ptr<GraphExec> exec;
    size_t index = 0;
    if (const CUresult result = find_exec_node(s, handle, node, exec, index); result != CUDA_SUCCESS) return result;
    const auto* now = std::get_if<KernelWork>(&exec->body->nodes[index].work.what);
    if (now == nullptr) return wrong_type();
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    KernelWork changed;
    if (const CUresult result = make_kernel_work(s, *params, changed); result != CUDA_SUCCESS) return result;
    if (changed.loaded != now->loaded) return refuse(CUDA_ERROR_INVALID_VALUE, "the node's kernel may not change");
    auto& place = std::get<KernelWork>(exec->writable().nodes[index].work.what);
    place = std::move(changed);
    place.params[0] = place.args.data();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                                CUcontext context) {
  return enter(Needs::context, [&](State& s, Lock&) {
    std::shared_ptr<GraphExec> exec;
    size_t index = 0;
    if (const CUresult result = find_exec_node(s, handle, node, exec, index); result != CUDA_SUCCESS) return result;
    const auto* now = std::get_if<CopyWork>(&exec->body->nodes[index].work.what);
    if (now == nullptr) return wrong_type();
    if (copy == nullptr || context != primary_context()) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_copy(s, *copy); result != CUDA_SUCCESS) return result;
    if (copy->srcMemoryType != now->copy.srcMemoryType || copy->dstMemoryType != now->copy.dstMemoryType)
      return refuse(CUDA_ERROR_INVALID_VALUE, "the kinds of memory of a copy node may not change");
    const auto flat = [](const CUDA_MEMCPY3D& c) { return c.Height <= 1 && c.Depth <= 1; };
    if (flat(*copy) != flat(now->copy))
      return refuse(CUDA_ERROR_INVALID_VALUE, "a linear copy node may not become two-dimensional, nor the reverse");
    std::get<CopyWork>(exec->writable().nodes[index].work.what).copy = *copy;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS* fill, CUcontext context) {
  return enter(Needs::context, [&](State& s, Lock&) {
    std::shared_ptr<GraphExec> exec;
    size_t index = 0;
    if (const CUresult result = find_exec_node(s, handle, node, exec, index); result != CUDA_SUCCESS) return result;
    const auto* now = std::get_if<FillWork>(&exec->body->nodes[index].work.what);
    if (now == nullptr) return wrong_type();
    if (fill == nullptr || context != primary_context()) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_fill(s, *fill); result != CUDA_SUCCESS) return result;
    if ((fill->height <= 1) != (now->fill.height <= 1))
      return refuse(CUDA_ERROR_INVALID_VALUE, "a linear fill node may not become two-dimensional, nor the reverse");
    std::get<FillWork>(exec->writable().nodes[index].work.what).fill = *fill;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto exec = s.execs.find(handle);
    if (exec == nullptr) return no_exec();
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof *info);
    if (find_cycle(*graph) != nullptr) {
      info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      return refuse(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph has a cycle");
    }
    const auto next = make_body(*graph);
    const UpdateProblem problem = compare(*exec->body, *next);
    info->result = problem.result;
    if (problem.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      if (problem.node < graph->nodes.size()) info->errorNode = graph->nodes[problem.node]->handle;
      return refuse(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph differs at node " + std::to_string(problem.node));
    }
    // Nodes keep answering to the graph that the exec was made from, and to whether they are enabled.
    for (size_t i = 0; i < next->nodes.size(); ++i) {
      next->nodes[i].id = exec->body->nodes[i].id;
      next->nodes[i].enabled = exec->body->nodes[i].enabled;
    }
    exec->body = next;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled) {
  return enter(Needs::context, [&](State& s, Lock&) {
    std::shared_ptr<GraphExec> exec;
    size_t index = 0;
    if (const CUresult result = find_exec_node(s, handle, node, exec, index); result != CUDA_SUCCESS) return result;
    const CUgraphNodeType type = exec->body->nodes[index].type;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET)
      return refuse(CUDA_ERROR_INVALID_VALUE, "only kernel, copy and fill nodes can be disabled");
    exec->writable().nodes[index].enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int* enabled) {
  return enter(Needs::context, [&](State& s, Lock&) {
    std::shared_ptr<GraphExec> exec;
    size_t index = 0;
    if (const CUresult result = find_exec_node(s, handle, node, exec, index); result != CUDA_SUCCESS) return result;
    if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = exec->body->nodes[index].enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}
