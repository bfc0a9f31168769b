#include "graph/run/recapture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>

#include "graph/nodes/held_nodes.h"

namespace nodewright {
namespace {

template <class T>
bool same_bytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

void find_kernel_changes(const PlanNode& node, const CUDA_KERNEL_NODE_PARAMS_v3& a, const CUDA_KERNEL_NODE_PARAMS_v3& b,
                         std::vector<std::string>& changed) {
  const bool same_kernel = a.func == b.func && a.kern == b.kern;
  if (!same_kernel) changed.push_back("kernel");
  const auto shape = [](const CUDA_KERNEL_NODE_PARAMS_v3& p) {
    return std::array{p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes};
  };
  if (shape(a) != shape(b)) changed.push_back("shape");
  if (!same_kernel || a.kernelParams == nullptr || b.kernelParams == nullptr) return;
  std::vector<KernelParameter> parameters = node.kernel->parameters;
  if (parameters.empty() && node.kernel->args_bytes != 0)
    parameters = {{0, static_cast<uint32_t>(node.kernel->args_bytes)}};
  const auto arguments = [&](const CUDA_KERNEL_NODE_PARAMS_v3& p) {
    return held_arguments(std::bit_cast<CUDA_KERNEL_NODE_PARAMS>(p), parameters);
  };
  const std::vector<std::byte> was = arguments(a), is = arguments(b);
  for (const FieldInfo& field : node.fields)
    if (std::memcmp(was.data() + field.offset, is.data() + field.offset, field.bytes) != 0)
      changed.push_back(fmt::format("argument '{}'", field.name));
}

void find_copy_changes(const CUDA_MEMCPY3D& a, const CUDA_MEMCPY3D& b, std::vector<std::string>& changed) {
  if (a.srcDevice != b.srcDevice || a.srcHost != b.srcHost || a.srcArray != b.srcArray) changed.push_back("from");
  if (a.dstDevice != b.dstDevice || a.dstHost != b.dstHost || a.dstArray != b.dstArray) changed.push_back("to");
  if (a.WidthInBytes != b.WidthInBytes || a.Height != b.Height || a.Depth != b.Depth) changed.push_back("size");
}

void find_fill_changes(const CUDA_MEMSET_NODE_PARAMS_v2& a, const CUDA_MEMSET_NODE_PARAMS_v2& b,
                       std::vector<std::string>& changed) {
  if (a.dst != b.dst) changed.push_back("address");
  if (a.value != b.value || a.elementSize != b.elementSize) changed.push_back("value");
  if (a.width != b.width || a.height != b.height || a.pitch != b.pitch) changed.push_back("size");
}

}  // namespace

RecaptureChange recapture_change(const PlanNode* node, const CUgraphNodeParams& before, const CUgraphNodeParams& after,
                                 bool updatable) {
  RecaptureChange change{node != nullptr ? node->name : "", updatable, {}, &before, &after};
  if (before.type != after.type) return change;
  if (node != nullptr && node->kind == NodeKind::kernel && before.type == CU_GRAPH_NODE_TYPE_KERNEL)
    find_kernel_changes(*node, before.kernel, after.kernel, change.changed);
  if (before.type == CU_GRAPH_NODE_TYPE_MEMCPY)
    find_copy_changes(before.memcpy.copyParams, after.memcpy.copyParams, change.changed);
  if (before.type == CU_GRAPH_NODE_TYPE_MEMSET) find_fill_changes(before.memset, after.memset, change.changed);
  if (before.type == CU_GRAPH_NODE_TYPE_HOST && !same_bytes(before.host, after.host))
    change.changed.push_back("function");
  return change;
}

std::string describe(const RecaptureChange& change) {
  return fmt::format("{}: {}{}", change.node.empty() ? "a node of a library" : change.node,
                     change.changed.empty() ? "parameters" : fmt::format("{}", fmt::join(change.changed, ", ")),
                     change.updatable ? "" : "; the instantiated graph cannot take it");
}

}  // namespace nodewright
