// How many pages an engine's memory holds beside its weights, its state and its graphs. Arithmetic only: takes no
// memory.
#pragma once

#include <cstdint>

#include "engine/device/step_slots_options.h"

namespace nodewright {

struct PageBudget {
  int64_t wanted = 0;         // pages; 0: as many as there is room for
  uint64_t page_bytes = 0;    // of one page in all layers, those with a window aside where there are others; 0: a
                              // stage of a pipeline has only such layers, and room for any number
  int64_t max_context = 0;    // tokens; the cache must hold one request of this length
  uint64_t limit = 0;         // bytes of all that `use` counts; 0: none
  uint64_t free = 0;          // bytes of device memory, graphs and pages not yet taken
  MemoryUse use;              // all but the pages
  uint64_t window_bytes = 0;  // of the pages of layers with a window, whose number does not depend on the others
};

// Throws Error (usage) naming the option that asks for too much, the one that forbids it, and what would do.
int64_t pages_within(const PageBudget& budget);

// Throws Error where more than `limit` is used; 0: no limit.
void check_within(uint64_t limit, const MemoryUse& use);

}  // namespace nodewright
