// What a start builds, and the memory that it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nodewright {

// A graph of the start, and what it cost.
struct BuiltBucket {
  int slot = 0;
  int bucket = 0;            // rows; 0: the plan of eager_rows
  size_t nodes = 0;          // 0 when eager; with adapters those of both graphs
  uint64_t bytes = 0;        // of device memory, as estimate_exec() says; 0 when eager
  double ms = 0;             // of the thread that built it
  int built = 0, total = 0;  // graphs so far, with this one, and in the end
};

// What a start took to build everything. Wall time, of all threads together.
struct BuiltGraphs {
  std::vector<BuiltBucket> graphs;           // the largest bucket first, its slots in their order
  size_t products = 0;                       // of a library, whose kernels were loaded first
  double products_ms = 0;                    // that this took
  size_t threads = 1;                        // that built
  double ms = 0;                             // of the steps' plans and graphs
  double choice_ms = 0;                      // of those of second choices; 0 without options.choices
  double waited_ms = 0;                      // after all of it, for weights that were still on their way
  uint64_t free_before = 0, free_after = 0;  // bytes of device memory
};

// Device memory of an engine.
struct MemoryUse {
  uint64_t weights = 0;
  uint64_t state = 0;   // inputs, activations and outputs of all slots
  uint64_t graphs = 0;  // estimated
  uint64_t pages = 0;
  uint64_t adapters = 0;  // their slots
  uint64_t total() const { return weights + state + graphs + pages + adapters; }
};

}  // namespace nodewright
