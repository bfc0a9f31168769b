// The functions of host nodes as the driver calls them.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "graph/node.h"

namespace nodewright {

// Calls the HostCall that `data` points to; keeps what it throws.
void CUDA_CB call_host(void* data) noexcept;

// Throws Error with what a host node of the plan, or of a plan inside, has thrown since the last call, and forgets it.
void report_host_problems(const Plan& plan);

// The functions that a graph calls, kept for as long as it may call them: the driver knows nothing but their addresses.
// Destroyed, it waits for the device if launches may be under way.
class HostCalls {
 public:
  explicit HostCalls(const Device& device) : device_(&device) {}
  ~HostCalls() { wait(); }
  HostCalls(HostCalls&& other) noexcept = default;
  HostCalls& operator=(HostCalls&& other) noexcept;

  // Keeps those of the plan and of the plans inside. What was added before stays: a launch may be under way.
  void add(const Plan& plan);
  // To be called before each launch. Throws Error as report_host_problems does.
  void before_launch();

 private:
  void wait() noexcept;

  const Device* device_;
  std::vector<std::shared_ptr<HostCall>> calls_;
  bool launched_ = false;
};

}  // namespace nodewright
