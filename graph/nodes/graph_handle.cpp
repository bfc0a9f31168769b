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

std::string_view words_for(CUgraphExecUpdateResult result) {
  switch (result) {
    case CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED:
      return "the edges or the number of nodes changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED:
      return "the type of the node changed";
    case CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED:
    case CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE:
      return "the node's function may not become this one";
    case CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED:
      return "a parameter changed that may not";
    case CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED:
      return "the node has no update";
    case CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED:
      return "an attribute changed that may not";
    default:
      return "no reason given";
  }
}

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
