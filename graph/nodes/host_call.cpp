#include "graph/nodes/host_call.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/device.h"

namespace nodewright {
namespace {

void report(HostCall& call) {
  if (!call.failed.load(std::memory_order_acquire)) return;
  const std::string problem = std::exchange(call.problem, {});
  call.failed = false;
  throw Error({.doing = "run host node", .object = call.node_name, .detail = "its function threw: " + problem});
}

// Calls f(const std::shared_ptr<HostCall>&) for every host function of the plan and of the plans inside.
template <class Function>
void for_each_call(const Plan& plan, const Function& f) {
  for (const PlanNode& node : plan.nodes) {
    if (node.host != nullptr) f(node.host);
    for (const auto& body : node.bodies) for_each_call(*body, f);
  }
}

}  // namespace

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
  for_each_call(plan, [](const std::shared_ptr<HostCall>& call) { report(*call); });
}

HostCalls& HostCalls::operator=(HostCalls&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(calls_, other.calls_);
  std::swap(captured_, other.captured_);
  std::swap(launched_, other.launched_);
  std::swap(most_calls_, other.most_calls_);
  return *this;
}

void HostCalls::add(const Plan& plan) {
  for_each_call(plan, [&](const std::shared_ptr<HostCall>& call) { calls_.push_back(call); });
}

void HostCalls::add(std::shared_ptr<HostCall> call) {
  calls_.push_back(std::move(call));
  if (calls_.size() > most_calls_) forget_unused();
}

void HostCalls::forget_unused() {
  if (launched_) device_->synchronize();
  std::erase_if(calls_, [](const std::shared_ptr<HostCall>& call) { return call.use_count() == 1 && !call->failed; });
  most_calls_ = std::max(most_calls_, 2 * calls_.size());
}

// Functions whose problem is still to be reported stay.
void HostCalls::forget_before(const Mark& mark) {
  constexpr size_t kMostKept = 1024;
  if (mark.calls + mark.captured < kMostKept) return;
  if (launched_) device_->synchronize();
  captured_.erase(captured_.begin(), captured_.begin() + static_cast<std::ptrdiff_t>(mark.captured));
  const auto end = calls_.begin() + static_cast<std::ptrdiff_t>(mark.calls);
  calls_.erase(std::remove_if(calls_.begin(), end, [](const auto& call) { return !call->failed; }), end);
}

void HostCalls::take_back(const Mark& mark) {
  calls_.resize(mark.calls);
  captured_.erase(captured_.begin() + static_cast<std::ptrdiff_t>(mark.captured), captured_.end());
}

void HostCalls::before_launch() {
  for (const auto& call : calls_) report(*call);
  launched_ = true;
}

void HostCalls::wait() noexcept {
  if (!launched_ || (calls_.empty() && captured_.empty())) return;
  try {
    device_->synchronize();
  } catch (const Error&) {  // what went wrong is reported where the stream is waited for
  }
}

}  // namespace nodewright
