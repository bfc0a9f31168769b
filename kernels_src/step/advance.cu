// One block. Each thread ends or advances rows t, t + 128, ...; then the live rows after the new n_live move into the
// places before it that became free, one place each, so that no row is read after it was overwritten.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/step/advance.h"

namespace nodewright {

// What a row's end depends on beside its token, and what advances.
struct RowState {
  int32_t left, position, output_index, caller_row, stop_ids[kMostStopIds];

  NODEWRIGHT_DEVICE bool ends(int token) const {
    bool stops = token < 0 || left <= 1;
    NODEWRIGHT_UNROLL
    for (int64_t i = 0; i < kMostStopIds; ++i) stops |= stop_ids[i] == token;
    return stops;
  }
};

NODEWRIGHT_DEVICE RowState row_state(const Advance& args, int row) {
  RowState state{load_settled(args.left.data + row),
                 load_settled(args.positions.data + row),
                 load_settled(args.output_index.data + row),
                 load_settled(args.caller_row.data + row),
                 {}};
  NODEWRIGHT_UNROLL
  for (int64_t i = 0; i < kMostStopIds; ++i)
    state.stop_ids[i] = load_settled(args.stop_ids.data + row * kMostStopIds + i);
  return state;
}

template <class Field>
NODEWRIGHT_DEVICE void move_element(Field& field, int from, int to) {
  field.data[to] = field.data[from];
}

NODEWRIGHT_DEVICE void move_row(const Advance& args, int from, int to) {
  const auto thread = static_cast<int64_t>(threadIdx.x);
  if (thread < kMostStopIds)
    args.stop_ids.data[to * kMostStopIds + thread] = args.stop_ids.data[from * kMostStopIds + thread];
  if (thread != 0) return;
  move_element(args.positions, from, to);
  move_element(args.sequences, from, to);
  move_element(args.temperature, from, to);
  move_element(args.min_p, from, to);
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
  // While the tokens are chosen: all but them, of this thread's first row.
  auto* goes_on = reinterpret_cast<int32_t*>(shared_memory());  // [rows] 1 or 0
  int32_t* ended = goes_on + args.rows;                         // [1]
  const int live = load_settled(args.n_live.data), step = load_settled(args.steps_done.data);
  const auto first = static_cast<int>(threadIdx.x);
  RowState state{};
  if (first < live) state = row_state(args, first);
  if (threadIdx.x == 0) *ended = 0;
  wait_for_inputs();
  __syncthreads();

  for (int row = first; row < live; row += static_cast<int>(kAdvanceThreads)) {
    const int token = args.chosen.data[row];
    if (row != first) state = row_state(args, row);
    args.delivered.data[step * args.rows + state.caller_row] = token;
    const bool ends = state.ends(token);
    goes_on[row] = ends ? 0 : 1;
    if (ends) atomicAdd(ended, 1);
    args.tokens.data[row] = -1;
    args.left.data[row] = state.left - 1;
    args.positions.data[row] = state.position + 1;
    args.output_index.data[row] = state.output_index + 1;
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
