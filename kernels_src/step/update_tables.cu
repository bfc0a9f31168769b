// block_table[to + i] = pages[from + i] of every run. Warp w of all blocks: runs w, w + warps, ...; a lane: every 32nd
// entry.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/step/update_tables.h"

NODEWRIGHT_KERNEL(update_tables, UpdateTables, kUpdateTablesThreads) {
  release_dependents();
  wait_for_inputs();
  const int lane = static_cast<int>(threadIdx.x % 32), runs = args.n_runs.data[0];
  const int warps = static_cast<int>(gridDim.x * (kUpdateTablesThreads / 32));
  for (int r = static_cast<int>((blockIdx.x * kUpdateTablesThreads + threadIdx.x) / 32); r < runs; r += warps) {
    const TableRun run = args.runs.data[r];
    for (int i = lane; i < run.count; i += 32) args.block_table.data[run.to + i] = args.pages.data[run.from + i];
  }
}
