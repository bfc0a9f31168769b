#include "graph/product_node.h"

#include <fmt/format.h>

#include <cstring>

#include "graph/graph_builder.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// cuBLAS's documentation, cublasSetWorkspace: at least 256 bytes (cublasLtMatmul itself asks for 16).
constexpr uint64_t kWorkspaceAlignment = 256;

CUgraphNode add_reference(const PlanNode& node, const MatmulOperands& operands, const NodePlace& place) {
  ReferenceProduct arguments = node.product->reference_arguments(operands);
  void* argument = &arguments;
  const Kernel<ReferenceProduct>& kernel = node.product->reference();
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_KERNEL;
  parameters.kernel.func = kernel.loaded->function;
  parameters.kernel.gridDimX = kernel.shape.grid[0];
  parameters.kernel.gridDimY = parameters.kernel.gridDimZ = 1;
  parameters.kernel.blockDimX = kernel.shape.block[0];
  parameters.kernel.blockDimY = parameters.kernel.blockDimZ = 1;
  parameters.kernel.kernelParams = &argument;
  const Driver& driver = node.product->device().driver();
  CUgraphNode added = nullptr;
  driver.label(node.name);
  driver.check(driver.cuGraphAddNode(&added, place.graph, place.before.data(), place.types.data(), place.before.size(),
                                     &parameters),
               "cuGraphAddNode", "add node", node.name, "the reference product");
  return added;
}

}  // namespace

NodeId GraphBuilder::product(std::string_view name, std::shared_ptr<const MatmulPlan> product,
                             const ProductOperands& operands, const std::vector<NodeId>& after) {
  PlanNode node = new_node(name, NodeKind::product);
  if (product == nullptr) refuse(node, "it has no product", "make one with MatmulPlanner::plan");
  if (&product->device() != plan_.device)
    refuse(node, fmt::format("product '{}' was planned for another device", product->name()),
           "plan it for the device of this builder");
  const MatmulShape& shape = product->shape();
  const MatmulSpans spans = product->spans();
  const bool in_place = spans.c != 0 && operands.c.bytes == 0;
  std::vector<AddressedUse> uses;
  const auto use = [&](std::string_view field, const ProductOperand& operand, uint64_t bytes, Element element,
                       bool written) {
    if (bytes == 0) {
      if (operand.bytes != 0)
        refuse(node, fmt::format("operand '{}' is given, and {} has none", field, to_string(shape)),
               "leave it out, or plan the product with it");
      return;
    }
    if (operand.element != element)
      refuse(node,
             fmt::format("operand '{}' holds {}, and {} takes {}", field, to_string(operand.element), to_string(shape),
                         to_string(element)),
             "pass a view of the planned element type");
    if (operand.bytes < bytes)
      refuse(node,
             fmt::format("operand '{}' has {} bytes, and {} needs {}", field, operand.bytes, to_string(shape), bytes),
             "pass the whole matrix");
    if (written && operand.frozen)
      refuse(node, fmt::format("operand '{}' is written, and given as a weight", field), "pass a view");
    const Access access = !written   ? (operand.frozen ? Access::frozen : Access::in)
                          : in_place ? Access::inout
                                     : Access::out;
    uses.push_back({field, operand.address, bytes, access, product->alignment_bytes()});
  };
  use("a", operands.a, spans.a, shape.inputs, false);
  use("b", operands.b, spans.b, shape.inputs, false);
  if (!in_place) use("c", operands.c, spans.c, shape.output, false);
  use("bias", operands.bias, spans.bias, shape.output, false);
  use("y", operands.y, spans.y, shape.output, true);
  if (spans.workspace != 0) {
    if (operands.workspace.bytes() < spans.workspace)
      refuse(node,
             fmt::format("its workspace has {} bytes, and {} needs {}", operands.workspace.bytes(), product->describe(),
                         spans.workspace),
             "pass MatmulPlan::workspace_bytes() bytes, or plan with a lower limit");
    // Written before it is read, and worth nothing afterwards.
    uses.push_back({"workspace", operands.workspace.address(), spans.workspace, Access::out, kWorkspaceAlignment});
  }
  node.product = std::move(product);
  return add(std::move(node), uses, std::nullopt, after);
}

MatmulOperands operands_of(const Plan& plan, const PlanNode& node) {
  MatmulOperands operands;
  for (const Use& use : node.uses) {
    const uint64_t address = plan.buffers.at(use.buffer).range.address + use.offset;
    if (use.field == "a") operands.a = address;
    if (use.field == "b") operands.b = address;
    if (use.field == "c") operands.c = address;
    if (use.field == "bias") operands.bias = address;
    if (use.field == "y") operands.y = address;
    if (use.field == "workspace") operands.workspace = address;
  }
  return operands;
}

BuiltProduct ProductNodes::add(const Plan& plan, const PlanNode& node, const NodePlace& place) {
  const MatmulPlan& product = *node.product;
  const MatmulOperands operands = operands_of(plan, node);
  if (product.backend() == MatmulBackend::reference)
    return {add_reference(node, operands, place), {.reference = true}, {}};
  auto known = known_.find(&product);
  if (known == known_.end()) known = known_.emplace(&product, Known{forms_.of(product), std::nullopt}).first;
  auto& [form, recorded] = known->second;
  if (!form.imported || !recorded || !recorded->move_to(operands)) {
    if (!stream_) stream_.emplace(product.device(), "record products");
    RecordedProduct own(product, operands, node.name, *stream_);
    ++recorded_;
    if (form.imported && !own.obstacle().empty()) form = {.imported = false, .reason = own.obstacle()};
    if (!form.imported) return {own.add_child(place), form, {}};
    if (recorded) own.compare(*recorded);
    recorded.emplace(std::move(own));
  }
  return {recorded->add_kernel(place, node.name), form, recorded->launch()};
}

void ProductLoader::load(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    for (const auto& body : node.bodies) load(*body);
    if (node.kind != NodeKind::product || node.product->backend() == MatmulBackend::reference ||
        !seen_.insert(node.product.get()).second)
      continue;
    forms_.of(*node.product);
    if (!stream_) stream_.emplace(node.product->device(), "load products");
    RecordedProduct(*node.product, operands_of(plan, node), node.name, *stream_);
  }
}

void submit_product(const Plan& plan, const PlanNode& node, CUstream stream) {
  node.product->submit(operands_of(plan, node), stream);
}

std::string describe_product(const PlanNode& node) {
  return fmt::format("product {}; {}", to_string(node.product->shape()), node.product->describe());
}

std::vector<std::string> product_differences(const Plan& plan, const PlanNode& node, const BuiltProduct& built) {
  const Driver& driver = plan.device->driver();
  CUgraphNodeType type{};
  driver.check(driver.cuGraphNodeGetType(built.node, &type), "cuGraphNodeGetType", "read node", node.name);
  const CUgraphNodeType expected = built.form.imported ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_GRAPH;
  if (type != expected)
    return {fmt::format("node '{}': a product, {}, is of type {} in the driver", node.name, to_string(built.form),
                        static_cast<int>(type))};
  if (!built.form.imported) return {};
  bool equal = false;
  if (node.product->backend() == MatmulBackend::cublaslt) {
    equal = kernel_launch(driver, built.node, node.name) == built.kernel;
  } else {
    CUDA_KERNEL_NODE_PARAMS held{};
    driver.check(driver.cuGraphKernelNodeGetParams(built.node, &held), "cuGraphKernelNodeGetParams", "read node",
                 node.name);
    const ReferenceProduct arguments = node.product->reference_arguments(operands_of(plan, node));
    const Kernel<ReferenceProduct>& kernel = node.product->reference();
    equal = held.func == kernel.loaded->function && held.gridDimX == kernel.shape.grid[0] &&
            held.kernelParams != nullptr && std::memcmp(held.kernelParams[0], &arguments, sizeof arguments) == 0;
  }
  if (equal) return {};
  return {fmt::format("node '{}': the driver holds another kernel, shape or arguments than were added", node.name)};
}

}  // namespace nodewright
