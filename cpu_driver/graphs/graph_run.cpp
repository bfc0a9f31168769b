// A run keeps the body it started with, so patches reach the next launch only.
#include "cpu_driver/graphs/graph_run.h"

#include <algorithm>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/work/peer_launch.h"

namespace nodewright::cpu {
namespace {

// Without CU_GRAPH_COND_ASSIGN_DEFAULT a condition is undefined at the start of each execution (CUDA C++ Programming
// Guide, "Conditional Handles"): neither 0 nor a body's number, so that a missing setter shows.
constexpr uint32_t kUndefinedValue = 0xa5a5a5a5;

std::string name_of(const ExecNode& node) {
  return node.work.label.empty() ? "unnamed node" : "node '" + node.work.label + "'";
}

}  // namespace

GraphRun::GraphRun(State& state, std::shared_ptr<const GraphBody> body, std::shared_ptr<const EventRecords> records,
                   std::vector<std::shared_ptr<Conditional>> conditionals)
    : state_(state),
      body_(std::move(body)),
      records_(std::move(records)),
      conditionals_(std::move(conditionals)),
      left_(body_->nodes.size()),
      random_((state.options.seed + ++state.launches) * 0x9e3779b97f4a7c15ull | 1) {
  missing_.reserve(left_);
  for (uint32_t i = 0; i < left_; ++i) {
    missing_.push_back(static_cast<uint32_t>(body_->nodes[i].after.size()));
    if (missing_[i] == 0) ready_.push_back(i);
  }
}

size_t GraphRun::choose() {
  switch (state_.options.schedule) {
    case CpuSchedule::forward:
      return 0;
    case CpuSchedule::reverse:
      return ready_.size() - 1;
    default:
      random_ ^= random_ << 13;
      random_ ^= random_ >> 7;
      random_ ^= random_ << 17;
      return random_ % ready_.size();
  }
}

void GraphRun::begin() {
  for (const auto& conditional : conditionals_) {
    conditional->value = conditional->assign_default ? conditional->default_value : kUndefinedValue;
    conditional->is_set = conditional->assign_default;
  }
  conditionals_.clear();
}

Progress GraphRun::step(std::unique_lock<std::mutex>& lock, WorkerPool& pool) {
  begin();
  if (ready_.empty()) return Progress::finished;
  const size_t first = choose();
  Progress progress = Progress::blocked;
  size_t place = first;
  for (size_t i = 0; i < ready_.size() && progress == Progress::blocked; ++i) {
    place = (first + i) % ready_.size();
    progress = step_node(ready_[place], lock, pool);
  }
  if (progress != Progress::finished) return progress;
  const ExecNode& node = body_->nodes[ready_[place]];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(place));
  for (const uint32_t next : node.before)
    if (--missing_[next] == 0) ready_.insert(std::upper_bound(ready_.begin(), ready_.end(), next), next);
  return --left_ == 0 ? Progress::finished : Progress::ran;
}

// Finished: the node has ended.
Progress GraphRun::step_node(uint32_t index, std::unique_lock<std::mutex>& lock, WorkerPool& pool) {
  const ExecNode& node = body_->nodes[index];
  if (!node.inner.empty()) {
    const Progress progress = step_inside(node, nested_[index], lock, pool);
    if (progress == Progress::finished) nested_.erase(index);
    return progress;
  }
  if (std::holds_alternative<RecordWork>(node.work.what)) {
    for (const auto& [recorder, completion] : *records_)
      if (recorder == &node) complete(*completion);
    return Progress::finished;
  }
  if (!node.enabled) return Progress::finished;
  WorkState at;
  if (const auto begun = at_.find(index); begun != at_.end()) at = begun->second;
  // Runs never change a node's work: copies of a graph have neither staging nor poison.
  const Progress progress = run_work(state_, lock, pool, const_cast<Work&>(node.work), at);
  if (progress == Progress::finished)
    at_.erase(index);
  else
    at_[index] = std::move(at);
  return progress;
}

std::string GraphRun::describe_waiting() const {
  std::string all;
  const auto add = [&](const std::string& one) { all.append(all.empty() || one.empty() ? "" : "; ").append(one); };
  for (const auto& [index, at] : at_)
    if (at.launch != nullptr) add(at.launch->describe(state_));
  for (const auto& [index, nested] : nested_)
    if (nested.run != nullptr) add(nested.run->describe_waiting());
  return all;
}

// One node of the inner graph, so that the schedule mixes it with nodes beside this one. Finished: the node has ended.
Progress GraphRun::step_inside(const ExecNode& node, Nested& nested, std::unique_lock<std::mutex>& lock,
                               WorkerPool& pool) {
  if (nested.run == nullptr) {
    const auto* body = next_body(node, nested);
    if (body == nullptr) return Progress::finished;
    nested.run = std::make_unique<GraphRun>(state_, *body, records_);
  }
  const Progress progress = nested.run->step(lock, pool);
  if (progress != Progress::finished) return progress;
  nested.run.reset();
  ++nested.rounds;
  const auto* conditional = std::get_if<ConditionalWork>(&node.work.what);
  return conditional != nullptr && conditional->type == CU_GRAPH_COND_TYPE_WHILE ? Progress::ran : Progress::finished;
}

// What the node runs next, null if nothing: CUgraphConditionalNodeType in cuda.h.
const std::shared_ptr<const GraphBody>* GraphRun::next_body(const ExecNode& node, Nested& nested) {
  const auto* conditional = std::get_if<ConditionalWork>(&node.work.what);
  if (conditional == nullptr) return &node.inner[0];
  if (state_.options.check_accesses && !conditional->condition->is_set) {
    state_.fail(CUDA_ERROR_LAUNCH_FAILED,
                name_of(node) +
                    ": its condition is undefined: it was made without CU_GRAPH_COND_ASSIGN_DEFAULT, and no "
                    "kernel has set it in this launch");
    return nullptr;
  }
  const uint32_t value = conditional->condition->value.load(std::memory_order_relaxed);
  switch (conditional->type) {
    case CU_GRAPH_COND_TYPE_SWITCH:
      return value < node.inner.size() ? &node.inner[value] : nullptr;
    case CU_GRAPH_COND_TYPE_IF:
      if (value != 0) return &node.inner[0];
      return node.inner.size() == 2 ? &node.inner[1] : nullptr;
    default:
      break;
  }
  if (value == 0) return nullptr;
  if (nested.rounds == 0) nested.begun_ms = now_ms();
  const auto limit_ms = static_cast<double>(state_.options.launch_timeout_ms);
  if (limit_ms > 0 && now_ms() - nested.begun_ms > limit_ms) {
    state_.fail(CUDA_ERROR_LAUNCH_TIMEOUT, name_of(node) + ", WHILE: " + std::to_string(nested.rounds) +
                                               " rounds took longer than launch_timeout_ms, " +
                                               std::to_string(state_.options.launch_timeout_ms) +
                                               ", and the condition is still " + std::to_string(value));
    return nullptr;
  }
  return &node.inner[0];
}

}  // namespace nodewright::cpu
