// GraphBuilder::product: a matrix product as a library node, with its operands checked against their plan.
#include <fmt/format.h>

#include "graph/builder_state.h"
#include "runtime/matmul_plan.h"

namespace nodewright {
namespace {

// cuBLAS's documentation, cublasSetWorkspace: at least 256 bytes (cublasLtMatmul itself asks for 16).
constexpr uint64_t kWorkspaceAlignment = 256;

}  // namespace

NodeId GraphBuilder::product(std::string_view name, std::shared_ptr<const MatmulPlan> product,
                             const ProductOperands& operands, const NodeOptions& options) {
  const PlanNode node = state_->new_node(name, NodeKind::library);
  if (product == nullptr) state_->refuse(node, "it has no product", "make one with MatmulPlanner::plan");
  if (&product->device() != state_->plan_.device)
    state_->refuse(node,
                   fmt::format("product '{}' was planned for another device, {}, than the plan's, {}", product->name(),
                               describe_device(product->device()), describe_device(*state_->plan_.device)),
                   "plan it for the device of this builder");
  const MatmulShape& shape = product->shape();
  const MatmulSpans spans = product->spans();
  const bool in_place = spans.c != 0 && operands.c.bytes == 0;
  std::vector<DeclaredUse> uses;
  const auto use = [&](const char* field, const ProductOperand& operand, uint64_t bytes, Element element,
                       bool written) {
    if (bytes == 0) {
      if (operand.bytes != 0)
        state_->refuse(node, fmt::format("operand '{}' is given, and {} has none", field, to_string(shape)),
                       "leave it out, or plan the product with it");
      return;
    }
    if (operand.element != element)
      state_->refuse(node,
                     fmt::format("operand '{}' holds {}, and {} takes {}", field, to_string(operand.element),
                                 to_string(shape), to_string(element)),
                     "pass a view of the planned element type");
    if (operand.bytes < bytes)
      state_->refuse(
          node,
          fmt::format("operand '{}' has {} bytes, and {} needs {}", field, operand.bytes, to_string(shape), bytes),
          "pass the whole matrix");
    if (written && operand.frozen)
      state_->refuse(node, fmt::format("operand '{}' is written, and given as a weight", field), "pass a view");
    const Access access = !written   ? (operand.frozen ? Access::frozen : Access::in)
                          : in_place ? Access::inout
                                     : Access::out;
    uses.push_back({field, CopyEnd(operand.address, bytes, false), access, product->alignment_bytes()});
  };
  use("a", operands.a, spans.a, shape.inputs, false);
  use("b", operands.b, spans.b, shape.inputs, false);
  if (!in_place) use("c", operands.c, spans.c, shape.output, false);
  use("bias", operands.bias, spans.bias, shape.output, false);
  use("y", operands.y, spans.y, shape.output, true);
  if (spans.workspace != 0) {
    if (operands.workspace.bytes() < spans.workspace)
      state_->refuse(node,
                     fmt::format("its workspace has {} bytes, and {} needs {}", operands.workspace.bytes(),
                                 product->describe(), spans.workspace),
                     "pass MatmulPlan::workspace_bytes() bytes, or plan with a lower limit");
    // Written before it is read, and worth nothing afterwards.
    uses.push_back(
        {"workspace", CopyEnd(operands.workspace.address(), spans.workspace, false), Access::out, kWorkspaceAlignment});
  }
  const MatmulOperands addresses{.a = operands.a.address,
                                 .b = operands.b.address,
                                 .c = in_place || spans.c == 0 ? 0 : operands.c.address,
                                 .bias = spans.bias == 0 ? 0 : operands.bias.address,
                                 .y = operands.y.address,
                                 .workspace = spans.workspace == 0 ? 0 : operands.workspace.address()};
  std::string what = fmt::format("product {}; {}", to_string(shape), product->describe());
  return library(
      name, uses,
      {.submit = [product = std::move(product), addresses](CUstream stream) { product->submit(addresses, stream); },
       .on_cpu_driver = true,
       .what = std::move(what)},
      options);
}

}  // namespace nodewright
