#include "graph/timing/node_timer.h"

namespace nodewright {

NodeTimer::NodeTimer(const Plan& plan, KernelCache& kernels, const Stream& stream)
    : plan_(plan),
      stream_(stream),
      twin_(timed_twin(plan, kernels)),
      graph_(plan),
      twin_graph_(twin_.plan),
      launches_(plan, twin_, kernels, stream) {
  graph_.upload(stream);
  twin_graph_.upload(stream);
}

PlanTimings NodeTimer::measure(const NodeTimerOptions& options) {
  return launches_.measure(
      plan_, twin_, [&](const Stream& stream) { graph_.launch(stream); },
      [&](const Stream& stream) { twin_graph_.launch(stream); }, options);
}

std::vector<BlockStamps> NodeTimer::stamps_of_one_launch() {
  launches_.clear(twin_.stamps);
  twin_graph_.launch(stream_);
  return launches_.read(twin_.stamps);
}

}  // namespace nodewright
