// Entry points of later versions of CUDA: the numbers of graphs and nodes.
#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_exec.h"

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

template <class Object, class Number>
CUresult tell(const std::shared_ptr<Object>& object, const char* what, Number value, Number* out) {
  if (object == nullptr) return refuse(CUDA_ERROR_INVALID_VALUE, std::string("no such ") + what);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = value;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult CUDAAPI cuGraphGetId(CUgraph handle, unsigned* id) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto graph = s.graphs.find(handle);
    return tell(graph, "graph", graph == nullptr ? 0 : graph->number, id);
  });
}

extern "C" CUresult CUDAAPI cuGraphExecGetId(CUgraphExec handle, unsigned* id) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto exec = s.execs.find(handle);
    return tell(exec, "executable graph", exec == nullptr ? 0 : exec->number, id);
  });
}

extern "C" CUresult CUDAAPI cuGraphNodeGetLocalId(CUgraphNode handle, unsigned* id) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto node = s.nodes.find(handle);
    return tell(node, "node", node == nullptr ? 0 : node->number, id);
  });
}

// Unique in the process, as tools need it.
extern "C" CUresult CUDAAPI cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* id) {
  return enter(Needs::context, [&](State& s, Lock&) {
    const auto node = s.nodes.find(handle);
    const unsigned long long graph = node == nullptr ? 0 : node->owner->number;
    return tell(node, "node", node == nullptr ? 0 : graph << 32 | node->number, id);
  });
}
