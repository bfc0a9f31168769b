#include "graph/nodes/library_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "graph/nodes/held_nodes.h"
#include "graph/nodes/host_call.h"
#include "graph/nodes/node_parameters.h"
#include "runtime/calls/child_ownership.h"
#include "runtime/context_guard.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse(const PlanNode& node, std::string detail, std::string advice) {
  throw Error({.doing = "call the library of node",
               .object = node.name,
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

void check(const Driver& driver, CUresult result, const char* call, const PlanNode& node, std::string_view detail = {},
           std::string_view advice = {}) {
  if (result != CUDA_SUCCESS) driver.check(result, call, "capture the library of node", node.name, detail, advice);
}

// Relaxed: at its first use a library loads its kernels, which the stricter modes forbid on a capturing thread.
GraphHandle capture(const PlanNode& node, const Driver& driver, CUstream stream) {
  check(driver, driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture", node);
  CUgraph graph = nullptr;
  try {
    submit_library(node, driver, stream);
  } catch (...) {
    driver.cuStreamEndCapture(stream, &graph);  // a stream left capturing could not be destroyed
    const GraphHandle partial(driver, graph);
    throw;
  }
  const CUresult result = driver.cuStreamEndCapture(stream, &graph);
  GraphHandle captured(driver, graph);
  check(driver, result, "cuStreamEndCapture", node, "its call did what a captured stream forbids",
        "submit to the stream that the call is given, join streams that were forked from it, and wait for nothing");
  return captured;
}

std::vector<CUgraphNode> nodes_of(const PlanNode& node, const Driver& driver, CUgraph graph) {
  return held_nodes(driver, graph, node.name);
}

template <class T>
void append_bytes(std::vector<std::byte>& bytes, const T& value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

std::vector<std::byte> semaphores_of(const PlanNode& node, const Driver& driver, CUgraphNode handle,
                                     CUgraphNodeType type) {
  std::vector<std::byte> bytes;
  for (const SemaphoreParameters& semaphore : held_semaphores(driver, handle, type, node.name)) {
    append_bytes(bytes, semaphore.semaphore);
    append_bytes(bytes, semaphore.value);
  }
  return bytes;
}

std::string_view name_of(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "copy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "fill";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "host function";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "child graph";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "empty";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "event wait";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "event record";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return "external semaphore signal";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "external semaphore wait";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "allocation";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "free";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "values";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "conditional";
    default:
      return "of another kind";
  }
}

SubmittedNode submitted_node(const PlanNode& node, const Driver& driver, CUgraphNode handle) {
  SubmittedNode result;
  result.type = held_type(driver, handle, node.name);
  if (result.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL || result.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT)
    result.arguments = semaphores_of(node, driver, handle, result.type);
  if (result.type != CU_GRAPH_NODE_TYPE_KERNEL) return result;
  const CUDA_KERNEL_NODE_PARAMS held = held_kernel(driver, handle, node.name);
  result.function = held.func;
  result.kernel = held.kern;
  result.shape = {held.gridDimX,  held.gridDimY,  held.gridDimZ,      held.blockDimX,
                  held.blockDimY, held.blockDimZ, held.sharedMemBytes};
  result.arguments = held_arguments(held, held_parameters(driver, held, node.name));
  return result;
}

std::vector<SubmittedNode> submitted_nodes(const PlanNode& node, const Driver& driver,
                                           const std::vector<CUgraphNode>& handles) {
  std::vector<SubmittedNode> result;
  for (const CUgraphNode handle : handles) result.push_back(submitted_node(node, driver, handle));
  return result;
}

CUgraphNode add(const PlanNode& node, const Driver& driver, const NodePlace& place, CUgraphNodeParams& parameters,
                std::string_view detail) {
  CUgraphNode added = nullptr;
  driver.label(node.name);
  const CUresult result = driver.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(),
                                                place.before.size(), &parameters);
  if (result != CUDA_SUCCESS) driver.check(result, "cuGraphAddNode", "add node", node.name, detail);
  return added;
}

CUgraphNode add_stand_in(const PlanNode& node, const Driver& driver, const NodePlace& place) {
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_HOST;
  parameters.host.fn = call_host;
  parameters.host.userData = node.host.get();
  return add(node, driver, place, parameters, "the stand-in of a library");
}

// The kernel with the arguments as the library has laid them out.
CUgraphNode add_kernel(const PlanNode& node, const Driver& driver, const NodePlace& place, CUgraphNode captured) {
  const CUDA_KERNEL_NODE_PARAMS held = held_kernel(driver, captured, node.name);
  CUgraphNodeParams parameters = kernel_node(held);
  const CUgraphNode added = add(node, driver, place, parameters, "the kernel of a library");
  // Without its cluster dimension the kernel would not launch (CUDA_ERROR_INVALID_CLUSTER_SIZE).
  check(driver, driver.cuGraphKernelNodeCopyAttributes(added, captured), "cuGraphKernelNodeCopyAttributes", node);
  return added;
}

CUgraphNode add_graph(const PlanNode& node, const Driver& driver, const NodePlace& place, CUgraph graph, bool moved) {
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = graph;
  set_moved(parameters.graph, moved);
  return add(node, driver, place, parameters, "as a child graph");
}

// The driver's rules for copies of graphs (CUDA driver API, cuGraphAddNode and cuGraphClone).
void check_may_be_copied(const PlanNode& node, const std::vector<SubmittedNode>& nodes) {
  for (const SubmittedNode& inner : nodes) {
    const bool allocates = inner.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || inner.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (allocates || inner.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      throw Error({.doing = "add node",
                   .object = node.name,
                   .detail = fmt::format("its graph has {}, which a copy in another graph cannot have",
                                         allocates ? "a node that allocates or frees memory" : "a conditional node"),
                   .advice = "launch that graph by itself, before or after this one"});
  }
}

BuiltLibrary add_copy(const PlanNode& node, const Driver& driver, const NodePlace& place) {
  const CUgraph graph = node.library->graph;
  std::vector<SubmittedNode> nodes = submitted_nodes(node, driver, nodes_of(node, driver, graph));
  check_may_be_copied(node, nodes);
  const CUgraphNode added = add_graph(node, driver, place, graph, false);
  return {added, LibraryForm::graph, std::move(nodes)};
}

}  // namespace

std::string_view to_string(LibraryForm form) {
  switch (form) {
    case LibraryForm::kernel:
      return "kernel";
    case LibraryForm::graph:
      return "child graph";
    case LibraryForm::stand_in:
      return "stand-in";
  }
  return "?";
}

std::string names_of_nodes(const Driver& driver, CUgraph graph, std::string_view name) {
  std::map<CUgraphNodeType, size_t> kinds;
  for (const CUgraphNode node : held_nodes(driver, graph, name)) ++kinds[held_type(driver, node, name)];
  std::string text;
  for (const auto& [type, many] : kinds)
    text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", many, name_of(type));
  return text.empty() ? "no nodes" : text;
}

void submit_library(const PlanNode& node, const Driver& driver, CUstream stream) {
  if (driver.is_cpu() && !node.library->on_cpu_driver)
    refuse(node, "the CPU driver runs no library, and the node has no stand-in",
           "pass GraphBuilder::library a host function that computes the same, or run on a GPU");
  try {
    node.library->submit(stream);
  } catch (const std::exception& problem) {
    refuse(node, fmt::format("its call threw: {}", problem.what()), "");
  } catch (...) {
    refuse(node, "its call threw something that is no std::exception", "");
  }
}

AddedLibrary add_library(const PlanNode& node, const NodePlace& place, const Stream& stream, LibraryForm preferred) {
  const Driver& driver = stream.device().driver();
  if (node.host != nullptr) return {{add_stand_in(node, driver, place), LibraryForm::stand_in, {}}, {}};
  if (node.library->graph != nullptr) return {add_copy(node, driver, place), {}};
  GraphHandle captured = capture(node, driver, stream.get());
  const std::vector<CUgraphNode> handles = nodes_of(node, driver, captured.get());
  if (handles.empty())
    refuse(node, "its call has submitted nothing to the stream that it was given", "submit to that stream");
  std::vector<SubmittedNode> submitted = submitted_nodes(node, driver, handles);
  if (preferred == LibraryForm::kernel && submitted.size() == 1 && submitted[0].type == CU_GRAPH_NODE_TYPE_KERNEL) {
    const CUgraphNode added = add_kernel(node, driver, place, handles[0]);
    return {{added, LibraryForm::kernel, std::move(submitted)}, std::move(captured)};
  }
  const CUgraphNode added = add_graph(node, driver, place, captured.get(), kChildrenMove);
  if (kChildrenMove) captured.release();
  return {{added, LibraryForm::graph, std::move(submitted)}, std::move(captured)};
}

bool same_kernels(const BuiltLibrary& a, const BuiltLibrary& b) {
  return a.form == b.form && std::is_permutation(a.submitted.begin(), a.submitted.end(), b.submitted.begin(),
                                                 b.submitted.end(), [](const SubmittedNode& x, const SubmittedNode& y) {
                                                   return x.type == y.type && x.function == y.function &&
                                                          x.kernel == y.kernel;
                                                 });
}

std::vector<std::string> library_differences(const PlanNode& node, const Driver& driver, const BuiltLibrary& built,
                                             CUgraphNode held) {
  if (built.form == LibraryForm::stand_in) {
    CUDA_HOST_NODE_PARAMS stand_in{};
    check(driver, driver.cuGraphHostNodeGetParams(held, &stand_in), "cuGraphHostNodeGetParams", node);
    if (stand_in.fn == call_host && stand_in.userData == node.host.get()) return {};
    return {fmt::format("node '{}': another stand-in", node.name)};
  }
  std::vector<CUgraphNode> handles{held};
  if (built.form == LibraryForm::graph) {
    CUgraph inside = nullptr;
    check(driver, driver.cuGraphChildGraphNodeGetGraph(held, &inside), "cuGraphChildGraphNodeGetGraph", node);
    handles = nodes_of(node, driver, inside);
  }
  const std::vector<SubmittedNode> found = submitted_nodes(node, driver, handles);
  // A clone may list its nodes in another order.
  if (std::is_permutation(found.begin(), found.end(), built.submitted.begin(), built.submitted.end())) return {};
  return {fmt::format("node '{}': the driver holds another {} than its library has submitted", node.name,
                      to_string(built.form))};
}

void LibraryLoader::load(const Plan& plan) {
  const ContextGuard current(*plan.device);
  for (const PlanNode& node : plan.nodes) {
    for (const auto& body : node.bodies) load(*body);
    if (node.kind != NodeKind::library || node.host != nullptr || node.library->graph != nullptr) continue;
    if (node.library->is_ready) continue;
    if (!devices_.contains(plan.device))
      devices_.emplace(plan.device, OfDevice{Stream(*plan.device, "load libraries"), {}});
    OfDevice& device = devices_.at(plan.device);
    const std::string& what = node.library->what;
    if (!what.empty() && !device.seen.insert(what).second) continue;
    capture(node, plan.device->driver(), device.stream.get());
    ++loaded_;
  }
}

}  // namespace nodewright
