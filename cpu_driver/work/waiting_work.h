// Work that may have to wait for memory or for a semaphore: batched memory operations, external semaphores. Asked again
// and again while others run; work that waits too long fails the driver.
#pragma once

#include <cstdint>
#include <string>

#include "cpu_driver/work/work.h"

namespace nodewright::cpu {

// An external semaphore: a timeline, which counts, or one that is signalled or not.
struct Semaphore {
  CUexternalSemaphore handle = nullptr;
  bool counts = false;
  uint64_t value = 0;
};

// The rules for operations. CUDA_SUCCESS, or the result of the call and the reason through refuse().
CUresult make_value_work(State& state, unsigned count, const CUstreamBatchMemOpParams* operations, unsigned flags,
                         ValueWork& work);
// Whether an executable graph's operations may become others (cuGraphExecBatchMemOpNodeSetParams in cuda.h).
bool may_become(const ValueWork& now, const ValueWork& next);

// Runs what need not wait, from operation `done` on, which it moves forward. False: the next one must wait; `why` says
// for what, and of which node. A range that is gone fails the driver.
bool run_values(State& state, const std::string& label, const ValueWork& work, size_t& done, std::string& why);
bool run_semaphores(const std::string& label, const SemaphoreWork& work, size_t& done, std::string& why);

}  // namespace nodewright::cpu
