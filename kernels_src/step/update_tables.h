// Entries of block tables that have changed, from pinned host memory into the tables that stay on the device. Launched
// before a step that needs them, and only then.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Successive entries of one table.
struct TableRun {
  int64_t to;    // index into block_table of the first
  int32_t from;  // index into pages
  int32_t count;
};

struct UpdateTables {
  In<int32_t> n_runs;          // [1]
  In<TableRun> runs;           // [n_runs], no two of the same entry
  In<int32_t> pages;           // those of the runs
  InOut<int32_t> block_table;  // [sequences, table_stride]
};

inline constexpr unsigned kUpdateTablesThreads = 128;
// A warp takes a run; more blocks would wait for the bus no less.
inline constexpr int64_t kMostUpdateTablesBlocks = 32;
constexpr LaunchShape update_tables_shape(int64_t sequences) {
  const int64_t warps = kUpdateTablesThreads / 32, blocks = (sequences + warps - 1) / warps;
  return {{static_cast<unsigned>(blocks < kMostUpdateTablesBlocks ? blocks : kMostUpdateTablesBlocks), 1, 1},
          {kUpdateTablesThreads, 1, 1},
          0};
}

}  // namespace nodewright
