// The functions of host nodes as the driver calls them.
#pragma once

#include <cuda.h>

#include <memory>
#include <utility>
#include <vector>

#include "graph/node.h"
#include "graph/nodes/graph_handle.h"

namespace nodewright {

// Calls the HostCall that `data` points to; keeps what it throws.
void CUDA_CB call_host(void* data) noexcept;

// Throws Error with what a host node of the plan, or of a plan inside, has thrown since the last call, and forgets it.
void report_host_problems(const Plan& plan);

// What a graph needs and the driver does not keep, for as long as the graph may run: the functions that it calls, and
// the graphs that the kernels of libraries were captured in. Destroyed, it waits for the device if launches may be
// under way.
class HostCalls {
 public:
  explicit HostCalls(const Device& device) : device_(&device) {}
  ~HostCalls() { wait(); }
  HostCalls(HostCalls&& other) noexcept = default;
  HostCalls& operator=(HostCalls&& other) noexcept;

  // Keeps those of the plan and of the plans inside. What was added before stays: a launch may be under way.
  void add(const Plan& plan);
  // Keeps one more; lets go of those that no plan and no patch holds, at times, and then waits for the device.
  void add(std::shared_ptr<HostCall> call);
  void keep(GraphHandle captured) { captured_.push_back(std::move(captured)); }
  // Lets go of what was added before `mark`, which no later launch needs: at times, and then it waits for the device.
  struct Mark {
    size_t calls = 0, captured = 0;
  };
  Mark mark() const { return {calls_.size(), captured_.size()}; }
  void forget_before(const Mark& mark);
  // Lets go of what was added since, for a graph that no launch has seen.
  void take_back(const Mark& mark);
  // To be called before each launch. Throws Error as report_host_problems does.
  void before_launch();

 private:
  void wait() noexcept;

  void forget_unused();

  const Device* device_;
  std::vector<std::shared_ptr<HostCall>> calls_;
  std::vector<GraphHandle> captured_;
  bool launched_ = false;
  size_t most_calls_ = 1024;  // when unused ones are looked for
};

}  // namespace nodewright
