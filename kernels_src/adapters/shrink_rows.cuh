// What shrink and norm_shrink share: the rows of A of a row's own adapter, past that row of x. Block (b, m): a range of
// ranks, row m. Sums as in product/rows/matvec.cuh: their order depends on kCols only.
#pragma once

#include "kernels_src/adapters/shrink.h"
#include "kernels_src/product/rows/matvec.cuh"

namespace nodewright {

// `fill(slice, row)` gets this thread's columns of the row, after the wait; `request()` asks before it for what it
// needs and nothing writes.
template <class Slice, class Args, class Request, class Fill>
NODEWRIGHT_DEVICE void shrink_row(const Args& args, Request request, Fill fill) {
  const AdapterRows& adapter = args.adapter;
  const int64_t row = blockIdx.y;
  const OutputRange range = block_outputs(adapter.ranks);
  const int live = load_settled(adapter.n_live.data), id = load_settled(adapter.ids.data + row);
  const int slot = row < live ? id : -1;  // rows from n_live on are undefined
  const bf16* const a = adapter.a.data + (slot < 0 ? 0 : slot) * adapter.slot_elements;
  WeightBatch batch;
  if (slot >= 0) request_first_batch(batch, a, range);
  request();
  release_dependents();
  wait_for_inputs();
  if (row >= live) return;
  float* const h = args.h.data + row * adapter.ranks;
  if (slot < 0) {
    for (int r = range.first + static_cast<int>(threadIdx.x); r < range.last; r += static_cast<int>(kThreads))
      h[r] = 0.0f;
    return;
  }
  Slice slice;
  fill(slice, row);
  const float* const scales = adapter.scales.data + slot * (adapter.slot_elements / 2);
  stream_weights(a, range, batch, slice, reinterpret_cast<float*>(shared_memory()),
                 [&](int segment, int rows, auto sum) {
                   for (int r = static_cast<int>(threadIdx.x); r < rows; r += static_cast<int>(kThreads))
                     h[segment + r] = scales[(segment + r) / static_cast<int>(kAdapterRank)] * sum(r, 0);
                 });
}

}  // namespace nodewright
