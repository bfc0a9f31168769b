// From the parameters of a semaphore call or node to its work.
#pragma once

#include "cpu_driver/driver_state.h"
#include "cpu_driver/work/waiting_work.h"

namespace nodewright::cpu {

inline CUresult no_semaphore() {
  return refuse(CUDA_ERROR_INVALID_HANDLE, "no such external semaphore: never imported, or destroyed");
}

inline void keep_params(SemaphoreWork& work, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS& params) {
  work.signal = true;
  work.signals.push_back(params);
}
inline void keep_params(SemaphoreWork& work, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS& params) {
  work.signal = false;
  work.waits.push_back(params);
}

template <class Params>
CUresult make_semaphore_work(State& state, const CUexternalSemaphore* handles, const Params* params, unsigned count,
                             SemaphoreWork& work) {
  if (handles == nullptr || params == nullptr || count == 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "no external semaphores");
  for (unsigned i = 0; i < count; ++i) {
    auto semaphore = state.semaphores.find(handles[i]);
    if (semaphore == nullptr) return no_semaphore();
    if (params[i].flags != 0) return refuse(CUDA_ERROR_INVALID_VALUE, "flags of an external semaphore are not 0");
    work.semaphores.push_back(std::move(semaphore));
    work.handles.push_back(handles[i]);
    work.values.push_back(params[i].params.fence.value);
    keep_params(work, params[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace nodewright::cpu
