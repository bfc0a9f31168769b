// The function of a host node as the driver calls it.
#pragma once

#include <cuda.h>

#include "graph/node.h"

namespace nodewright {

// Calls the HostCall that `data` points to; keeps what it throws.
void CUDA_CB call_host(void* data) noexcept;

// Throws Error with what a host node of the plan has thrown since the last call, and forgets it.
void report_host_problems(const Plan& plan);

}  // namespace nodewright
