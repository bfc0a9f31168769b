// One block. Each thread ends or advances rows t, t + 128, ...; then the live rows behind the new n_live move into the
// places before it that became free, one place each, so that no row is read after it was overwritten.
#include "kernels_src/advance.h"
#include "kernels_src/device/dialect.cuh"

namespace nodewright {

NODEWRIGHT_DEVICE bool ends_row(const Advance& args, int row, int token) {
  if (token < 0 || args.left.data[row] <= 1) return true;
  const int32_t* stop_ids = args.stop_ids.data + row * kMostStopIds;
  for (int64_t i = 0; i < kMostStopIds; ++i)
    if (stop_ids[i] == token) return true;
  return false;
}

template <class Field>
NODEWRIGHT_DEVICE void move_element(Field& field, int from, int to) {
  field.data[to] = field.data[from];
}

NODEWRIGHT_DEVICE void move_row(const Advance& args, int from, int to) {
  const auto thread = static_cast<int64_t>(threadIdx.x);
  for (int64_t page = thread; page < args.table_stride; page += kAdvanceThreads)
    args.block_table.data[to * args.table_stride + page] = args.block_table.data[from * args.table_stride + page];
  if (thread < kMostStopIds)
    args.stop_ids.data[to * kMostStopIds + thread] = args.stop_ids.data[from * kMostStopIds + thread];
  if (thread != 0) return;
  move_element(args.positions, from, to);
  move_element(args.sequences, from, to);
  move_element(args.temperature, from, to);
  move_element(args.top_k, from, to);
  move_element(args.top_p, from, to);
  move_element(args.seed, from, to);
  move_element(args.output_index, from, to);
  move_element(args.left, from, to);
  move_element(args.caller_row, from, to);
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(advance, Advance, kAdvanceThreads) {
  release_dependents();
  wait_for_inputs();
  auto* goes_on = reinterpret_cast<int32_t*>(shared_memory());  // [rows] 1 or 0
  int32_t* ended = goes_on + args.rows;                         // [1]
  const int live = args.n_live.data[0], step = args.steps_done.data[0];
  if (threadIdx.x == 0) *ended = 0;
  __syncthreads();

  for (int row = static_cast<int>(threadIdx.x); row < live; row += static_cast<int>(kAdvanceThreads)) {
    const int token = args.chosen.data[row];
    args.delivered.data[step * args.rows + args.caller_row.data[row]] = token;
    const bool ends = ends_row(args, row, token);
    goes_on[row] = ends ? 0 : 1;
    if (ends) atomicAdd(ended, 1);
    args.tokens.data[row] = -1;
    args.left.data[row] -= 1;
    args.positions.data[row] += 1;
    args.output_index.data[row] += 1;
  }
  __syncthreads();

  const int still_live = live - *ended;
  int to = 0;
  for (int from = still_live; from < live; ++from) {
    if (goes_on[from] == 0) continue;
    while (goes_on[to] != 0) ++to;
    move_row(args, from, to++);
  }
  if (threadIdx.x != 0) return;
  args.n_live.data[0] = args.n_sampled.data[0] = still_live;
  args.steps_done.data[0] = step + 1;
  set_condition(args.again, still_live > 0 && step + 1 < args.most_steps ? 1u : 0u);
}
