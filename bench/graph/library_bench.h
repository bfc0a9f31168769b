// Times a chain of library products in either form that a library node can have: a kernel node, or a child graph.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/spread.h"
#include "graph/nodes/library_nodes.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"

namespace nodewright {

struct LibraryBenchOptions {
  int nodes = 64;        // products of the chain: each reads what the one before it wrote
  int64_t rows = 64;     // of every product
  int64_t edge = 2048;   // each multiplies [rows, edge] by [edge, edge], bf16
  int repetitions = 15;  // of each figure
  int launches = 20;     // between two events
};

// In microseconds, of the whole graph.
struct LibraryBenchLine {
  LibraryForm form = LibraryForm::kernel;
  size_t in_form = 0;  // nodes that have it: a product of several kernels is a child graph in both lines
  Spread add;          // every node captured and added with its edges
  Spread instantiate;
  Spread launch;  // CPU time, the stream idle before
  Spread gpu;     // between two events, launches back to back
};

// Both forms in turn. Throws Error when they leave different bits.
std::vector<LibraryBenchLine> bench_library(Device& device, const Stream& stream, KernelCache& kernels,
                                            const LibraryBenchOptions& options);

}  // namespace nodewright
