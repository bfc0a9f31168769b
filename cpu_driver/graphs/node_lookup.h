// From handles to the work of a node, in a graph or in an executable graph: the frame of every entry point that reads
// or changes one node's parameters.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_exec.h"

namespace nodewright::cpu {

inline CUresult no_graph() { return refuse(CUDA_ERROR_INVALID_HANDLE, "no such graph: never created, or destroyed"); }
inline CUresult no_node() {
  return refuse(CUDA_ERROR_INVALID_HANDLE, "no such node: never added, or destroyed with its graph");
}
inline CUresult no_exec() {
  return refuse(CUDA_ERROR_INVALID_HANDLE, "no such executable graph: never made, or destroyed");
}
inline CUresult wrong_type() { return refuse(CUDA_ERROR_INVALID_VALUE, "the node is of another type"); }

// Calls body(State&, GraphNode&, NodeWork&) with the node that `handle` names.
template <class NodeWork, class Body>
CUresult with_node(CUgraphNode handle, Body&& body) {
  return enter(Needs::initialised, [&](State& s, Lock&) -> CUresult {
    const auto node = s.nodes.find(handle);
    if (node == nullptr) return no_node();
    auto* work = std::get_if<NodeWork>(&node->work.what);
    return work != nullptr ? body(s, *node, *work) : wrong_type();
  });
}

// Finds the node of an executable graph that came from the node `node_handle` of the graph it was made from, or of a
// graph inside it. Calls body(State&, GraphExec&, const ExecPlace&).
template <class Body>
CUresult with_exec_node(CUgraphExec exec_handle, CUgraphNode node_handle, Body&& body) {
  return enter(Needs::context, [&](State& s, Lock&) -> CUresult {
    const auto exec = s.execs.find(exec_handle);
    if (exec == nullptr) return no_exec();
    const auto node = s.nodes.find(node_handle);
    if (node == nullptr) return no_node();
    ExecPlace place;
    if (!find_place(*exec->body, node->id, place))
      return refuse(CUDA_ERROR_INVALID_VALUE, "the node was not in the graph when it was instantiated");
    return body(s, *exec, place);
  });
}

// Calls body(State&, NodeWork& next, const ExecNode&) with a copy of the node's work, and keeps the copy when that
// succeeds.
template <class NodeWork, class Body>
CUresult change_exec_node(CUgraphExec exec_handle, CUgraphNode node_handle, Body&& body) {
  return with_exec_node(exec_handle, node_handle, [&](State& s, GraphExec& exec, const ExecPlace& place) {
    const auto* now = std::get_if<NodeWork>(&exec.at(place).work.what);
    if (now == nullptr) return wrong_type();
    NodeWork next = *now;
    const CUresult result = body(s, next, exec.at(place));
    if (result == CUDA_SUCCESS) {
      if constexpr (requires { next.attributes.device_node; })
        exec.needs_upload |= next.attributes.device_node != nullptr;
      exec.change(place).work.what = std::move(next);
    }
    return result;
  });
}

}  // namespace nodewright::cpu
