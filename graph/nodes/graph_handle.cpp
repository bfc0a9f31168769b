#include "graph/nodes/graph_handle.h"

#include <fmt/format.h>

namespace nodewright {
namespace {

std::string_view words_for(CUgraphInstantiateResult result) {
  switch (result) {
    case CUDA_GRAPH_INSTANTIATE_SUCCESS:
      return "no reason given";
    case CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE:
      return "the structure is invalid, a cycle for example";
    case CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED:
      return "the node's operation is not supported";
    case CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED:
      return "nodes belong to several contexts";
    default:
      return "see the driver's words";
  }
}

}  // namespace

GraphExecHandle instantiate(const Driver& driver, CUgraph graph, const std::string& plan_name,
                            const std::function<std::string(CUgraphNode)>& name_of, const InstantiateHow& how) {
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = how.flags;
  parameters.hUploadStream = how.upload;
  CUgraphExec exec = nullptr;
  const CUresult result = driver.cuGraphInstantiateWithParams(&exec, graph, &parameters);
  if (result == CUDA_SUCCESS) return GraphExecHandle(driver, exec);
  std::string detail(words_for(parameters.result_out));
  if (parameters.hErrNode_out != nullptr)
    detail = fmt::format("at node '{}': {}", name_of(parameters.hErrNode_out), detail);
  driver.check(result, "cuGraphInstantiateWithParams", "instantiate graph", plan_name, detail);
  return GraphExecHandle(driver);
}

}  // namespace nodewright
