// What the library exports: the table of entries by name, and the extension functions.
#include <algorithm>
#include <cstring>

#include "cpu_driver/driver_state.h"
#include "runtime/calls/driver_entries.h"

#define NODEWRIGHT_ENTRY(name, version, parameters) extern "C" CUresult CUDAAPI name parameters;
NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY

#define NODEWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

using namespace nodewright;  // this file is the C interface itself
using namespace nodewright::cpu;

namespace {

struct Entry {
  const char* name;  // as it is asked for: without a version
  void* address;
};

constexpr int kEntries = 0
#define NODEWRIGHT_ENTRY(name, ...) +1
    NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY) NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
    ;

const Entry* entries() {
  static const Entry table[kEntries] = {
#define NODEWRIGHT_ENTRY(name, ...) {#name, reinterpret_cast<void*>(&name)},
      NODEWRIGHT_DRIVER_ENTRIES(NODEWRIGHT_ENTRY) NODEWRIGHT_OPTIONAL_ENTRIES(NODEWRIGHT_ENTRY)
#undef NODEWRIGHT_ENTRY
  };
  return table;
}

bool valid(const CpuDriverOptions& options) {
  return options.devices > 0 && options.devices <= kMostCpuDevices && options.sm_count > 0 &&
         options.sm_count <= 1024 && (options.compute_capability == 80 || options.compute_capability == 90) &&
         options.workers >= 0 && options.workers <= 1024 && options.schedule <= CpuSchedule::seeded &&
         options.memory_bytes >= (1 << 20) && options.memory_bytes <= (1ull << 38);
}

}  // namespace

NODEWRIGHT_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** address, int version,
                                                       cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || address == nullptr || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  *address = nullptr;
  for (int i = 0; i < kEntries; ++i)
    if (strcmp(entries()[i].name, symbol) == 0) *address = entries()[i].address;
  if (strcmp(symbol, "cuGetProcAddress") == 0) *address = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  const bool new_enough = version >= (CUDA_VERSION < 13000 ? 12080 : 13000);  // the typedefs of those headers
  if (!new_enough) *address = nullptr;
  if (status != nullptr)
    *status = *address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : new_enough        ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                  : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

NODEWRIGHT_EXPORT int nodewright_cpu_configure(const CpuDriverOptions* options) {
  std::unique_ptr<Executor> old;  // joined without the lock
  State& s = state();
  const Lock lock(s.mutex);
  if (options == nullptr || !valid(*options)) return CUDA_ERROR_INVALID_VALUE;
  if (s.any_retained()) return CUDA_ERROR_ALREADY_MAPPED;
  old = std::move(s.executor);
  s.options = *options;
  s.launches = 0;
  if (s.memory != nullptr && !s.memory->holds_device_memory()) s.memory.reset();
  return CUDA_SUCCESS;
}

NODEWRIGHT_EXPORT size_t nodewright_cpu_report(char* text, size_t bytes) {
  State& s = state();
  const Lock lock(s.mutex);
  const std::string& report = s.sticky != CUDA_SUCCESS ? s.report : refusal;
  if (text != nullptr && bytes > 0) {
    const size_t length = std::min(bytes - 1, report.size());
    memcpy(text, report.data(), length);
    text[length] = 0;
  }
  return report.size();
}

NODEWRIGHT_EXPORT int nodewright_cpu_set_condition(unsigned long long handle, unsigned int value) {
  State& s = state();
  const Lock lock(s.mutex);
  const auto entry = s.conditionals.find(handle);
  const auto conditional = entry == s.conditionals.end() ? nullptr : entry->second.lock();
  if (conditional == nullptr) return CUDA_ERROR_INVALID_VALUE;
  conditional->set(value);
  return CUDA_SUCCESS;
}

NODEWRIGHT_EXPORT void nodewright_cpu_clear_error() {
  State& s = state();
  const Lock lock(s.mutex);
  s.sticky = CUDA_SUCCESS;
  s.report.clear();
  refusal.clear();
}
