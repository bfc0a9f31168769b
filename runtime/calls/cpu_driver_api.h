// What the CPU driver offers beside CUDA's own entry points: options, names for reports, the last report.
// Plain C linkage, found with dlsym; its callers see no header of cpu_driver/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nodewright {

// In which order the CPU driver takes whatever CUDA leaves open: ready nodes, streams, blocks, warps and lanes.
enum class CpuSchedule : uint32_t {
  forward,  // lowest index first
  reverse,  // highest index first
  seeded,   // pseudo-random, from `seed`
};

inline constexpr int kMostCpuDevices = 8;

struct CpuDriverOptions {
  int devices = 1;              // up to kMostCpuDevices, alike, each with memory and a primary context of its own
  int sm_count = 4;             // what a device reports; grids derive from it
  int compute_capability = 90;  // 90 or 80
  int workers = 0;              // threads that run blocks; 0 = as many as the machine has cores
  CpuSchedule schedule = CpuSchedule::forward;
  uint64_t seed = 1;                   // of CpuSchedule::seeded
  bool check_accesses = false;         // every access against the roles of the arguments; needs images built `checked`
  bool poison = false;                 // overwrite pinned sources with 0xA5 once their deferred copy has run
  bool deferred = true;                // nothing runs before a synchronising call
  uint64_t memory_bytes = 4ull << 30;  // memory of a device
  // A kernel, or the WHILE node of a graph, that runs longer fails with CUDA_ERROR_LAUNCH_TIMEOUT. 0: never.
  uint64_t launch_timeout_ms = 0;
};

// One parameter in a kernel's parameter block.
struct CpuKernelParameter {
  uint32_t offset, bytes;
};

// An image for cuLibraryLoadData: a function of the program as a kernel. A launch calls it once.
struct CpuHostKernel {
  char magic[16] = "nodewright host";
  const char* name;
  const CpuKernelParameter* parameters;
  size_t parameter_count;
  const void* function;  // the driver keeps a copy of it, and of all that stands above
  // Null, or what went wrong; valid until the thread's next call.
  const char* (*run)(const void* function, const void* arguments);
  void* (*copy)(const void* function);
  void (*release)(void* function);
};

}  // namespace nodewright

extern "C" {

// Before cuInit, or after every retained primary context was released. Returns a CUresult:
// CUDA_ERROR_INVALID_VALUE for an option out of range, CUDA_ERROR_ALREADY_MAPPED when the driver is in use.
int nodewright_cpu_configure(const nodewright::CpuDriverOptions* options);

// Names the next cuLaunchKernelEx or cuGraphAddNode of the calling thread in reports. Copied; null takes it back.
void nodewright_cpu_label(const char* node_name);

// Names the buffer that starts at `address` in reports. Copied.
void nodewright_cpu_name_buffer(unsigned long long address, const char* name);

// Copies the report of the last fault, one line, into `text` (at most `bytes`, with the closing zero). Returns the
// length of the whole report, 0 when nothing went wrong so far.
size_t nodewright_cpu_report(char* text, size_t bytes);

// What cudaGraphSetConditional does in a kernel, for kernels that are functions of the program. Returns a CUresult:
// CUDA_ERROR_INVALID_VALUE for a handle that no graph has.
int nodewright_cpu_set_condition(unsigned long long handle, unsigned int value);

// Forgets a sticky error and its report, as a new process would: queued work is dropped, objects stay.
void nodewright_cpu_clear_error();
}
