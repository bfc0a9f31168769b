#include "graph/eager_run.h"

#include <vector>

#include "graph/node_parameters.h"

namespace nodewright {
namespace {

void submit_kernel(const PlanNode& node, const Driver& driver, CUstream stream, bool programmatic) {
  void* argument = argument_address(node.arguments);
  CUlaunchAttribute attribute;
  const CUlaunchConfig config = launch_config(node, stream, programmatic, &attribute);
  driver.check(driver.cuLaunchKernelEx(&config, node.kernel->function, &argument, nullptr), "cuLaunchKernelEx",
               "launch node", node.name);
}

void submit_copy(const PlanNode& node, const Driver& driver, CUstream stream) {
  const CopyParameters& copy = node.copy;
  if (copy.from_host)
    driver.check(driver.cuMemcpyHtoDAsync(copy.to, reinterpret_cast<const void*>(copy.from), copy.bytes, stream),
                 "cuMemcpyHtoDAsync", "launch node", node.name);
  else if (copy.to_host)
    driver.check(driver.cuMemcpyDtoHAsync(reinterpret_cast<void*>(copy.to), copy.from, copy.bytes, stream),
                 "cuMemcpyDtoHAsync", "launch node", node.name);
  else
    driver.check(driver.cuMemcpyDtoDAsync(copy.to, copy.from, copy.bytes, stream), "cuMemcpyDtoDAsync", "launch node",
                 node.name);
}

void submit_fill(const PlanNode& node, const Driver& driver, CUstream stream) {
  const FillParameters& fill = node.fill;
  if (fill.element_bytes == 4)
    driver.check(driver.cuMemsetD32Async(fill.to, fill.value, fill.count, stream), "cuMemsetD32Async", "launch node",
                 node.name);
  else
    driver.check(driver.cuMemsetD8Async(fill.to, static_cast<unsigned char>(fill.value), fill.count, stream),
                 "cuMemsetD8Async", "launch node", node.name);
}

}  // namespace

// Stream order is stronger than the plan's: an item starts after the one before it has completed, or, when its launch
// is programmatic, its wait returns after that. Only kernels that wait are launched so, hence every item's completion
// implies that of all items before it, whatever the plan's edges skip over.
void run_eager(const Plan& plan, const Stream& stream) {
  const Driver& driver = stream.device().driver();
  std::vector<bool> may_start_early(plan.nodes.size(), false);
  for (const Edge& edge : plan.edges)
    if (edge.type == EdgeType::programmatic) may_start_early[edge.to] = true;

  bool after_kernel = false;  // of this plan: what the stream ran before is unknown
  for (const PlanNode& node : plan.nodes) {
    driver.label(node.name);
    switch (node.kind) {
      case NodeKind::kernel:
        submit_kernel(node, driver, stream.get(), after_kernel && may_start_early[node.id]);
        after_kernel = true;
        break;
      case NodeKind::memcpy:
        submit_copy(node, driver, stream.get());
        after_kernel = false;
        break;
      case NodeKind::memset:
        submit_fill(node, driver, stream.get());
        after_kernel = false;
        break;
      case NodeKind::empty:
        break;  // the stream's order says as much
    }
  }
}

}  // namespace nodewright
