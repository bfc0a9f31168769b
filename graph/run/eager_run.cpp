#include "graph/run/eager_run.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "graph/nodes/host_call.h"
#include "graph/nodes/instantiate_rules.h"
#include "graph/nodes/library_nodes.h"
#include "graph/nodes/node_parameters.h"
#include "graph/run/stream_check.h"
#include "runtime/context_guard.h"

namespace nodewright {
namespace {

// Stands in a condition until a node sets it, where launches do not reset it.
constexpr uint32_t kUndefinedCondition = 0xa5a5a5a5;

// Stream order is stronger than the plan's: an item starts after the one before it has completed, or, when its launch
// is programmatic, its wait returns after that. Only kernels that wait are launched so, hence every item's completion
// implies that of all items before it, whatever the plan's edges skip over.
class EagerRun {
 public:
  EagerRun(const Stream& stream, const std::string& plan_name)
      : stream_(stream), driver_(stream.device().driver()), memory_(plan_name) {}
  // What a run that failed has not freed.
  ~EagerRun() {
    for (const auto& [planned, place] : memory_.places()) driver_.cuMemFreeAsync(place.address, stream_.get());
  }
  EagerRun(const EagerRun&) = delete;
  EagerRun& operator=(const EagerRun&) = delete;

  // Kernels may set conditions after the nodes that obey them, and must find the slots there.
  void finish() {
    if (!conditions_.empty()) stream_.synchronize();
  }

  void run(const Plan& plan) {
    for (const ConditionInfo& condition : plan.conditions) make_slot(condition);
    std::vector<bool> may_start_early(plan.nodes.size(), false);
    for (const Edge& edge : plan.edges)
      if (edge.type == EdgeType::programmatic) may_start_early[edge.to] = true;
    for (const PlanNode& node : plan.nodes) {
      driver_.label(node.name);
      submit(node, may_start_early[node.id]);
    }
  }

 private:
  void submit(const PlanNode& node, bool may_start_early) {
    const bool after_kernel = std::exchange(after_kernel_, node.kind == NodeKind::kernel);
    switch (node.kind) {
      case NodeKind::kernel:
        return submit_kernel(node, after_kernel && may_start_early);
      case NodeKind::memcpy:
        return submit_copy(node);
      case NodeKind::memset:
        return submit_fill(node);
      case NodeKind::host:
        return submit_host(node);
      case NodeKind::empty:  // the stream's order says as much
        after_kernel_ = after_kernel;
        return;
      case NodeKind::child:
        return run(*node.bodies[0]);
      case NodeKind::event_record:
        return check(driver_.cuEventRecordWithFlags(node.event, stream_.get(), record_flags()),
                     "cuEventRecordWithFlags", node);
      case NodeKind::event_wait:
        return check(driver_.cuStreamWaitEvent(stream_.get(), node.event, wait_flags()), "cuStreamWaitEvent", node);
      case NodeKind::conditional:
        return run_conditional(node);
      case NodeKind::library:
        if (node.host != nullptr) return submit_host(node);
        return submit_library(node, driver_, stream_.get());
      case NodeKind::allocate:
        return allocate(node);
      case NodeKind::free:
        return free(node);
      case NodeKind::values:
        return submit_values(node);
      case NodeKind::semaphore_signal:
        return signal(node);
      case NodeKind::semaphore_wait:
        return wait(node);
      case NodeKind::other:  // check_plan refuses plans that were read
        return;
    }
  }

  void submit_values(const PlanNode& node) {
    std::vector<CUstreamBatchMemOpParams> values = value_parameters(node.values);
    check(driver_.cuStreamBatchMemOp(stream_.get(), static_cast<unsigned>(values.size()), values.data(), 0),
          "cuStreamBatchMemOp", node);
  }

  void signal(const PlanNode& node) {
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS parameters = signal_parameters(node.semaphore);
    check(driver_.cuSignalExternalSemaphoresAsync(&node.semaphore.semaphore, &parameters, 1, stream_.get()),
          "cuSignalExternalSemaphoresAsync", node);
  }

  void wait(const PlanNode& node) {
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS parameters = wait_parameters(node.semaphore);
    check(driver_.cuWaitExternalSemaphoresAsync(&node.semaphore.semaphore, &parameters, 1, stream_.get()),
          "cuWaitExternalSemaphoresAsync", node);
  }

  void allocate(const PlanNode& node) {
    CUdeviceptr address = 0;
    check(driver_.cuMemAllocAsync(&address, node.uses[0].bytes, stream_.get()), "cuMemAllocAsync", node);
    memory_.place(node.allocated, node.uses[0].bytes, address);
  }

  void free(const PlanNode& node) {
    const CUdeviceptr address = memory_.address_of(node.allocated);
    memory_.remove(node.allocated);
    check(driver_.cuMemFreeAsync(address, stream_.get()), "cuMemFreeAsync", node);
  }

  void check(CUresult result, std::string_view call, const PlanNode& node) const {
    if (result != CUDA_SUCCESS) driver_.check(result, call, "launch node", node.name);
  }

  void submit_kernel(const PlanNode& node, bool programmatic) {
    LaunchAttributes attributes;
    const CUlaunchConfig config = launch_config(node, stream_.get(), programmatic, attributes);
    if (!sets_conditions(node) && memory_.empty()) {
      ParameterPointers parameters(node);
      check(driver_.cuLaunchKernelEx(&config, node.kernel->function, parameters.get(), nullptr), "cuLaunchKernelEx",
            node);
      return;
    }
    std::vector<std::byte> arguments(node.arguments.begin(), node.arguments.end());
    replace_conditions(node, arguments, [&](uint64_t address) {
      return Condition{0, conditions_.at(address)->as<uint32_t>().data()};
    });
    memory_.place_arguments(node, arguments);
    ParameterPointers parameters(node, arguments);
    check(driver_.cuLaunchKernelEx(&config, node.kernel->function, parameters.get(), nullptr), "cuLaunchKernelEx",
          node);
  }

  void submit_host(const PlanNode& node) {
    check(driver_.cuLaunchHostFunc(stream_.get(), call_host, node.host.get()), "cuLaunchHostFunc", node);
  }

  void submit_copy(const PlanNode& node) {
    const CopyParameters copy = memory_.placed(node.copy);
    if (copy.slices > 1 || copy.to_array != nullptr || copy.from_array != nullptr) {
      const CUDA_MEMCPY3D box = copy_parameters(copy);
      return check(driver_.cuMemcpy3DAsync(&box, stream_.get()), "cuMemcpy3DAsync", node);
    }
    if (copy.rows > 1) {
      const CUDA_MEMCPY2D rows = row_copy_parameters(copy);
      return check(driver_.cuMemcpy2DAsync(&rows, stream_.get()), "cuMemcpy2DAsync", node);
    }
    if (copy.from_host)
      check(driver_.cuMemcpyHtoDAsync(copy.to, reinterpret_cast<const void*>(copy.from), copy.bytes, stream_.get()),
            "cuMemcpyHtoDAsync", node);
    else if (copy.to_host)
      check(driver_.cuMemcpyDtoHAsync(reinterpret_cast<void*>(copy.to), copy.from, copy.bytes, stream_.get()),
            "cuMemcpyDtoHAsync", node);
    else
      check(driver_.cuMemcpyDtoDAsync(copy.to, copy.from, copy.bytes, stream_.get()), "cuMemcpyDtoDAsync", node);
  }

  void submit_fill(const PlanNode& node) {
    const FillParameters fill = memory_.placed(node.fill);
    if (fill.rows > 1) return submit_row_fill(node, fill);
    if (fill.element_bytes == 4)
      check(driver_.cuMemsetD32Async(fill.to, fill.value, fill.count, stream_.get()), "cuMemsetD32Async", node);
    else if (fill.element_bytes == 2)
      check(driver_.cuMemsetD16Async(fill.to, static_cast<uint16_t>(fill.value), fill.count, stream_.get()),
            "cuMemsetD16Async", node);
    else
      check(driver_.cuMemsetD8Async(fill.to, static_cast<unsigned char>(fill.value), fill.count, stream_.get()),
            "cuMemsetD8Async", node);
  }

  void submit_row_fill(const PlanNode& node, const FillParameters& fill) {
    if (fill.element_bytes == 4)
      check(driver_.cuMemsetD2D32Async(fill.to, fill.pitch, fill.value, fill.count, fill.rows, stream_.get()),
            "cuMemsetD2D32Async", node);
    else if (fill.element_bytes == 2)
      check(driver_.cuMemsetD2D16Async(fill.to, fill.pitch, static_cast<uint16_t>(fill.value), fill.count, fill.rows,
                                       stream_.get()),
            "cuMemsetD2D16Async", node);
    else
      check(driver_.cuMemsetD2D8Async(fill.to, fill.pitch, static_cast<unsigned char>(fill.value), fill.count,
                                      fill.rows, stream_.get()),
            "cuMemsetD2D8Async", node);
  }

  void run_conditional(const PlanNode& node) {
    const auto value = [&] {
      stream_.synchronize();
      const uint32_t held = conditions_.at(node.condition)->as<uint32_t>()[0];
      if (held == kUndefinedCondition && undefined_at_first_.contains(node.condition))
        throw Error({.doing = "run plan node by node",
                     .object = node.name,
                     .detail = "its condition is not reset at each launch, and no node has set it in this one",
                     .advice = "set the condition on every path to the node, or let launches reset it"});
      return held;
    };
    switch (node.conditional) {
      case ConditionalKind::if_:
        if (value() != 0)
          run(*node.bodies[0]);
        else if (node.bodies.size() > 1)
          run(*node.bodies[1]);
        break;
      case ConditionalKind::while_:
        while (value() != 0) run(*node.bodies[0]);
        break;
      case ConditionalKind::switch_:
        if (const uint32_t chosen = value(); chosen < node.bodies.size()) run(*node.bodies[chosen]);
        break;
    }
    after_kernel_ = false;
  }

  // Pinned memory that kernels set and the host reads. A graph assigns defaults when it is launched: a body that runs
  // again finds its own conditions as it left them.
  void make_slot(const ConditionInfo& condition) {
    std::unique_ptr<PinnedBuffer>& buffer = conditions_[condition.address];
    if (buffer != nullptr) return;
    buffer = std::make_unique<PinnedBuffer>(stream_.device(), "condition", kConditionBytes);
    buffer->as<uint32_t>()[0] = condition.reset_each_launch ? condition.default_value : kUndefinedCondition;
    if (!condition.reset_each_launch) undefined_at_first_.insert(condition.address);
  }

  bool capturing() const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    driver_.check(driver_.cuStreamIsCapturing(stream_.get(), &status), "cuStreamIsCapturing", "launch plan", "");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  // Under capture the event itself is to become a node, not an edge of the capture.
  unsigned record_flags() const { return capturing() ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT; }
  unsigned wait_flags() const { return capturing() ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT; }

  const Stream& stream_;
  const Driver& driver_;
  std::map<uint64_t, std::unique_ptr<PinnedBuffer>> conditions_;  // by ConditionInfo::address
  std::set<uint64_t> undefined_at_first_;                         // those that are not reset
  AllocatedMemory memory_;
  bool after_kernel_ = false;  // of this plan: what the stream ran before is unknown
};

}  // namespace

void run_eager(const Plan& plan, const Stream& stream) {
  check_stream(plan, stream, "run plan node by node");
  refuse_left_memory(plan, "run plan node by node");
  if (const PlanNode* node = first_with_handle(plan))
    throw Error({.doing = "run plan",
                 .object = plan.name,
                 .detail = fmt::format("node '{}': kernel '{}' sets a condition by the driver's handle, which only a "
                                       "graph has",
                                       node->name, node->kernel_name()),
                 .advice = "run the plan as an ExplicitGraph"});
  const ContextGuard current(stream.device());
  report_host_problems(plan);
  EagerRun run(stream, plan.name);
  run.run(plan);
  run.finish();
}

}  // namespace nodewright
