// Entry points: executable graphs, made, launched and updated as a whole.
#include <algorithm>
#include <cstring>

#include "cpu_driver/graphs/capture.h"
#include "cpu_driver/graphs/graph_memory.h"
#include "cpu_driver/graphs/graph_rules.h"
#include "cpu_driver/graphs/graph_run.h"
#include "cpu_driver/graphs/node_lookup.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

// What the wait nodes wait for: their events' state at the launch.
void wait_nodes(const GraphBody& body, std::vector<CompletionRef>& after) {
  for_each_node(body, [&](const ExecNode& node) {
    const auto* wait = std::get_if<WaitWork>(&node.work.what);
    if (wait != nullptr && wait->event->recorded != nullptr) after.push_back(wait->event->recorded);
  });
}

// As if each event were recorded now, to be done when its node runs.
std::shared_ptr<const EventRecords> record_nodes(const GraphBody& body, Stream& stream) {
  auto records = std::make_shared<EventRecords>();
  for_each_node(body, [&](const ExecNode& node) {
    const auto* record = std::get_if<RecordWork>(&node.work.what);
    if (record == nullptr) return;
    record->event->recorded = std::make_shared<Completion>();
    record->event->recorded->stream = &stream;
    record->event->capture = nullptr;
    record->event->tips.clear();
    records->push_back({&node, record->event->recorded});
  });
  return records;
}

// What the launch before left allocated must be gone, or goes now where the executable graph says so.
CUresult take_left_memory(State& s, Lock& lock, GraphExec& exec, const std::shared_ptr<Stream>& stream) {
  const bool frees = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& memory : exec.left)
    if (s.memory->starting_at(memory->address)->outstanding && !frees)
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "memory of the launch before has not been freed: it begins " + s.memory->describe(memory->address));
  for (const auto& memory : exec.left) {
    DeviceMemory::Block& block = *s.memory->starting_at(memory->address);
    if (block.outstanding) {
      Operation operation;
      operation.work.what = FreeWork{memory, memory->address};
      s.executor->enqueue(lock, stream, std::move(operation));
    }
    block.outstanding = true;
  }
  return CUDA_SUCCESS;
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
    if ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "graphs that kernels launch on the CPU driver");
    const bool uploads = (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
    if (uploads && s.find_stream(params->hUploadStream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((params->flags & ~kKnown) != 0)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "instantiation flags on the CPU driver");
    if (graph->capturing) return refuse(CUDA_ERROR_ILLEGAL_STATE, "a stream captures into the graph");
    if (const CUresult result = check_free(*graph, "instantiated alone"); result != CUDA_SUCCESS) return result;
    if (const GraphNode* node = find_cycle(*graph); node != nullptr) {
      params->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
      params->hErrNode_out = node->handle;
      return refuse(CUDA_ERROR_INVALID_VALUE, "the graph has a cycle");
    }
    auto exec = std::make_shared<GraphExec>();
    exec->conditionals = conditionals_in(*graph);
    const auto unused = [](const auto& conditional) { return !conditional->used; };
    if (std::any_of(exec->conditionals.begin(), exec->conditionals.end(), unused)) {
      params->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
      return refuse(CUDA_ERROR_INVALID_VALUE, "a conditional handle of the graph has no conditional node");
    }
    if (const CUresult result = check_single_exec(*graph); result != CUDA_SUCCESS) return result;
    exec->left = left_allocated(*graph);
    exec->updatable = holds_updatable_nodes(*graph);
    exec->needs_upload = exec->updatable && !uploads;
    exec->body = make_body(*graph);
    exec->flags = params->flags;
    if (!all_loaded(*exec->body)) return refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of the graph was unloaded");
    *out = exec->handle = s.execs.add(exec);
    graph->exec = exec;
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto found = s.execs.find(exec);
    if (found == nullptr) return no_exec();
    if (s.find_stream(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    found->needs_upload = false;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return enter(Needs::context, [&](State& s, Lock& lock) {
    const auto exec = s.execs.find(handle);
    if (exec == nullptr) return no_exec();
    const auto stream = s.find_stream(stream_handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr)
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "launching a graph into a capture on the CPU driver");
    if (!all_loaded(*exec->body)) return refuse(CUDA_ERROR_INVALID_HANDLE, "a kernel of the graph was unloaded");
    if (exec->needs_upload)
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    "kernels that the device may update, and no cuGraphUpload since the graph was made or changed");
    if (const CUresult result = take_left_memory(s, lock, *exec, stream); result != CUDA_SUCCESS) return result;
    Operation operation;
    if (exec->last_run != nullptr && !exec->last_run->done) operation.after.push_back(exec->last_run);
    wait_nodes(*exec->body, operation.after);
    const auto records = record_nodes(*exec->body, *stream);
    for (const auto& [node, completion] : *records) operation.records.push_back(completion);
    operation.run = std::make_shared<GraphRun>(s, exec->body, records, exec->conditionals);
    exec->last_run = s.executor->enqueue(lock, stream, std::move(operation));
    return s.sticky;
  });
}

// Runs under way keep what they need.
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  return enter_release([&](State& s, Lock&) { return s.execs.take(handle) != nullptr ? CUDA_SUCCESS : no_exec(); });
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto exec = s.execs.find(handle);
    if (exec == nullptr) return no_exec();
    const auto graph = s.graphs.find(graph_handle);
    if (graph == nullptr) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph");
    if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (holds_memory_nodes(*graph))
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "an update with allocations or frees, whose addresses stay");
    if (exec->updatable || holds_updatable_nodes(*graph))
      return refuse(CUDA_ERROR_NOT_SUPPORTED, "an update of a graph with kernels that the device may update");
    if (const CUresult result = check_free(*graph, "the source of an update"); result != CUDA_SUCCESS) return result;
    memset(info, 0, sizeof *info);
    if (find_cycle(*graph) != nullptr) {
      info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      return refuse(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph has a cycle");
    }
    const auto next = make_body(*graph);
    const UpdateProblem problem = compare_for_update(*exec->body, *next, exec->flags);
    info->result = problem.result;
    if (problem.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      if (problem.node < graph->nodes.size()) info->errorNode = graph->nodes[problem.node]->handle;
      return refuse(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph differs at node " + std::to_string(problem.node));
    }
    keep_identity(*exec->body, *next);
    exec->body = next;
    return CUDA_SUCCESS;
  });
}

// Neither told by NVIDIA's driver: an upload at once leaves no trace in the executable graph (cuda.h), and that
// priorities count (580.159.04).
CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto exec = s.execs.find(handle);
    if (exec == nullptr) return no_exec();
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    constexpr uint64_t kUntold = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    *flags = exec->flags & ~kUntold;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled) {
  return with_exec_node(handle, node, [&](State&, GraphExec& exec, const ExecPlace& place) {
    const CUgraphNodeType type = exec.at(place).type;
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET)
      return refuse(CUDA_ERROR_INVALID_VALUE, "only kernel, copy and fill nodes can be disabled");
    exec.change(place).enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int* enabled) {
  return with_exec_node(handle, node, [&](State&, GraphExec& exec, const ExecPlace& place) {
    if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *enabled = exec.at(place).enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}
