#include "tests/fuzz/meter.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "tests/fuzz/fuzz_target.h"

// <sanitizer/allocator_interface.h> declares these; a build without sanitizers has neither.
extern "C" {
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, size_t),
                                                                    void (*freed)(const volatile void*));
__attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void*);
}

namespace nodewright::fuzz {
namespace {

// A unit is what one byte or one state costs. The dearest calls of ten minutes of each fuzzer took 135 loads and 180
// bytes for a unit, both where patterns are read (clang 16 at -O1, 2026-11-27).
constexpr uint64_t kLoadsOfUnit = 300;
constexpr uint64_t kBytesOfUnit = 400;
constexpr uint64_t kFreeUnits = 5000;  // of a call that does next to nothing

thread_local uint64_t loads_so_far = 0;
thread_local int64_t live_bytes = 0, peak_bytes = 0;

void count_allocation(const volatile void*, size_t size) {
  live_bytes += static_cast<int64_t>(size);
  peak_bytes = std::max(peak_bytes, live_bytes);
}
void count_free(const volatile void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

[[maybe_unused]] const bool counts_bytes = __sanitizer_install_malloc_and_free_hooks != nullptr &&
                                           __sanitizer_install_malloc_and_free_hooks(count_allocation, count_free) != 0;

// The dearest call of each kind, printed at the end of the process where FUZZ_COSTS is set.
struct Dearest {
  struct Call {
    double ratio = 0;
    uint64_t units = 0, free = 0, loads = 0, bytes = 0;
    void print(const std::string& what, const char* of) const {
      std::fprintf(stderr, "dearest by %s, %s: %.1f a unit; %llu units, %llu free, %llu loads, %llu bytes\n", of,
                   what.c_str(), ratio, static_cast<unsigned long long>(units), static_cast<unsigned long long>(free),
                   static_cast<unsigned long long>(loads), static_cast<unsigned long long>(bytes));
    }
  };
  std::map<std::string, Call, std::less<>> by_loads, by_bytes;

  static void keep(std::map<std::string, Call, std::less<>>& all, std::string_view what, const Call& call) {
    const auto found = all.find(what);
    if (found == all.end())
      all.emplace(what, call);
    else if (found->second.ratio < call.ratio)
      found->second = call;
  }
  ~Dearest() {
    if (std::getenv("FUZZ_COSTS") == nullptr) return;
    for (const auto& [what, call] : by_loads) call.print(what, "loads");
    for (const auto& [what, call] : by_bytes) call.print(what, "bytes");
  }
} dearest;

}  // namespace

Meter::Meter(uint64_t most_units)
    : budget_(most_units),
      loads_before_(loads_so_far),
      live_before_(live_bytes),
      outer_peak_(std::exchange(peak_bytes, live_bytes)) {}

Meter::~Meter() { peak_bytes = std::max(peak_bytes, outer_peak_); }

uint64_t Meter::loads() const { return loads_so_far - loads_before_; }

uint64_t Meter::live() const { return static_cast<uint64_t>(std::max<int64_t>(live_bytes - live_before_, 0)); }

uint64_t Meter::bytes() const { return static_cast<uint64_t>(std::max<int64_t>(peak_bytes - live_before_, 0)); }

void Meter::check(std::string_view what, const Promise& promise) const {
  const uint64_t bought = units() + promise.free + kFreeUnits;
  Dearest::Call call{.units = units(), .free = promise.free, .loads = loads(), .bytes = bytes()};
  call.ratio = static_cast<double>(call.loads) / static_cast<double>(bought);
  Dearest::keep(dearest.by_loads, what, call);
  call.ratio = static_cast<double>(std::max(call.bytes, promise.bytes) - promise.bytes) / static_cast<double>(bought);
  Dearest::keep(dearest.by_bytes, what, call);
  const bool holds = call.units <= promise.units && call.loads <= kLoadsOfUnit * bought &&
                     call.bytes <= kBytesOfUnit * bought + promise.bytes;
  if (holds) return;
  call.print(std::string(what), "what it promises");
  require(holds, "the work is counted, and within what is promised");
}

}  // namespace nodewright::fuzz

// What the compiler calls before each load (-fsanitize-coverage=trace-loads).
#ifdef __clang__
#define NODEWRIGHT_COUNTS_LOAD(bytes, type)                                                                      \
  extern "C"                                                                                                     \
      __attribute__((no_sanitize("coverage", "address", "undefined"))) void __sanitizer_cov_load##bytes(type*) { \
    ++nodewright::fuzz::loads_so_far;                                                                            \
  }
NODEWRIGHT_COUNTS_LOAD(1, uint8_t)
NODEWRIGHT_COUNTS_LOAD(2, uint16_t)
NODEWRIGHT_COUNTS_LOAD(4, uint32_t)
NODEWRIGHT_COUNTS_LOAD(8, uint64_t)
NODEWRIGHT_COUNTS_LOAD(16, __uint128_t)
#endif
