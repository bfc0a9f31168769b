#include "graph/captured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/eager_run.h"
#include "graph/node_parameters.h"
#include "graph/stopwatch.h"

namespace nodewright {
namespace {

// Ends a capture that failed: a stream left capturing would be of no further use.
void abandon_capture(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  CUgraph graph = nullptr;
  driver.cuStreamEndCapture(stream, &graph);
  const GraphHandle partial(driver, graph);
}

bool holds_products(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
    return node.kind == NodeKind::product ||
           std::any_of(node.bodies.begin(), node.bodies.end(), [](const auto& body) { return holds_products(*body); });
  });
}

GraphHandle capture(const Plan& plan, const Stream& stream) {
  const Driver& driver = stream.device().driver();
  // At its first use cuBLASLt loads its kernels, which a stricter mode forbids.
  const auto mode = holds_products(plan) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  driver.check(driver.cuStreamBeginCapture(stream.get(), mode), "cuStreamBeginCapture", "capture plan", plan.name);
  try {
    run_eager(plan, stream);
    CUgraph graph = nullptr;
    const CUresult result = driver.cuStreamEndCapture(stream.get(), &graph);
    GraphHandle owned(driver, graph);
    driver.check(result, "cuStreamEndCapture", "capture plan", plan.name);
    return owned;
  } catch (...) {
    abandon_capture(driver, stream.get());
    throw;
  }
}

void check_capturable(const Plan& plan) {
  check_plan(plan);
  for (const PlanNode& node : plan.nodes) {
    if (node.kind == NodeKind::conditional)
      throw Error({.doing = "capture plan",
                   .object = plan.name,
                   .detail = fmt::format(
                       "node '{}' is conditional: stream capture would have to wait for its condition", node.name),
                   .advice = "run the plan explicitly or eagerly"});
  }
}

}  // namespace

CapturedGraph::CapturedGraph(const Plan& plan, const Stream& stream)
    : name_(plan.name),
      driver_(&stream.device().driver()),
      graph_(*driver_),
      exec_(*driver_),
      host_calls_(stream.device()) {
  check_capturable(plan);
  host_calls_.add(plan);
  Stopwatch watch;
  graph_ = capture(plan, stream);
  stats_.capture_ms = watch.lap_ms();
  exec_ = instantiate(
      *driver_, graph_.get(), name_, [](CUgraphNode) { return "captured, without a name"; }, instantiation_flags(plan));
  stats_.instantiate_ms = watch.lap_ms();
  driver_->check(driver_->cuGraphUpload(exec_.get(), stream.get()), "cuGraphUpload", "upload graph", name_);
  stats_.upload_ms = watch.lap_ms();
}

void CapturedGraph::recapture(const Plan& plan, const Stream& stream) {
  check_capturable(plan);
  host_calls_.add(plan);
  Stopwatch watch;
  GraphHandle graph = capture(plan, stream);
  stats_.capture_ms = watch.lap_ms();
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = driver_->cuGraphExecUpdate(exec_.get(), graph.get(), &info);
  driver_->check(result, "cuGraphExecUpdate", "update captured graph", name_,
                 fmt::format("update result {} (CUgraphExecUpdateResult)", static_cast<int>(info.result)));
  stats_.update_ms = watch.lap_ms();
  graph_ = std::move(graph);
}

void CapturedGraph::launch(const Stream& stream) const {
  host_calls_.before_launch();
  driver_->check(driver_->cuGraphLaunch(exec_.get(), stream.get()), "cuGraphLaunch", "launch graph", name_);
}

}  // namespace nodewright
