#include "graph/host_call.h"

#include <exception>

namespace nodewright {

void CUDA_CB call_host(void* data) noexcept {
  HostCall& call = *static_cast<HostCall*>(data);
  try {
    call.function();
    return;
  } catch (const std::exception& problem) {
    if (!call.failed) call.problem = problem.what();
  } catch (...) {
    if (!call.failed) call.problem = "something that is no std::exception";
  }
  call.failed.store(true, std::memory_order_release);
}

void report_host_problems(const Plan& plan) {
  for (const PlanNode& node : plan.nodes) {
    if (node.kind != NodeKind::host || !node.host->failed.load(std::memory_order_acquire)) continue;
    const std::string problem = std::exchange(node.host->problem, {});
    node.host->failed = false;
    throw Error({.doing = "run host node", .object = node.name, .detail = "its function threw: " + problem});
  }
}

}  // namespace nodewright
