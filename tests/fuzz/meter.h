// What an input costs, counted and not timed. Units are those that the code under test counts itself (WorkBudget); what
// it forgot to count shows in the loads from memory (counted by the compiler in the fuzz preset; 0 elsewhere) and in
// the bytes that are allocated at once (counted under a sanitizer; 0 elsewhere).
//
//   const BytePattern pattern = metered("reading a pattern", {5'000'000, text.size()}, [&] { ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/work_budget.h"

namespace nodewright::fuzz {

struct Promise {
  uint64_t units = 0;  // that may be counted, at most
  uint64_t free = 0;   // units that need not be counted, such as one for each byte of an input
  uint64_t bytes = 0;  // that may be allocated in addition to those that the units stand for
};

class Meter {
 public:
  explicit Meter(uint64_t most_units);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  uint64_t units() const { return budget_.spent(); }
  // Since the start.
  uint64_t loads() const;
  // Bytes that are allocated beyond those at the start: now, and at most.
  uint64_t live() const;
  uint64_t bytes() const;

  // Ends the process, naming `what`, unless the units are those promised, and loads and bytes in proportion to them.
  void check(std::string_view what, const Promise& promise) const;

 private:
  WorkBudget budget_;
  uint64_t loads_before_;
  int64_t live_before_, outer_peak_;
};

// Calls `call`, and checks what it cost, also where it throws.
template <class Call>
auto metered(std::string_view what, const Promise& promise, const Call& call) {
  struct Checked {
    std::string_view what;
    const Promise& promise;
    Meter meter{promise.units};
    ~Checked() { meter.check(what, promise); }
  } const checked{what, promise};
  return call();
}

}  // namespace nodewright::fuzz
