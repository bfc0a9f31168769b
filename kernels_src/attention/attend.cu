// y = softmax(q k^T * scale) v over keys 0 .. position, or the last `window` of them. Block (s, t, m): split s of the
// context, head tile t, row m. See attention/split_attention.cuh.
#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/split_attention.cuh"

NODEWRIGHT_KERNEL(attend, Attend, (32 * kWarps)) {
  release_dependents();
  wait_for_inputs();
  const int tile = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int live = args.n_live.data[0], length = args.positions.data[row] + 1, sequence = args.sequences.data[row];
  if (row >= live) return;
  const Split split = split_of(length, static_cast<int>(args.window), static_cast<int>(blockIdx.x));
  if (split.first >= split.last) return;
  const int head0 = tile * kTileHeads;
  const PagedKeys from{args.kv.data, args.block_table.data + sequence * args.table_stride,
                       static_cast<int>(head0 / (kHeads / kKvHeads))};
  Elements query;
  load_query(query, args.q.data + (row * kHeads + head0) * kHeadDim, args.scale);
  Running state;
  Chunk keys, values;
  const AttendMemory memory = attend_memory();
  request_chunk(keys, from, 0, split.first, split.last);
  request_chunk(values, from, 1, split.first, split.last);
  attend_split(split, from, keys, values, query, state, memory);
  gather_slots(state, memory);
  merge_splits(args, row, tile, static_cast<int>(blockIdx.x), split.splits, memory.weights, kWeights, memory.merged,
               memory.ticket, [&](int h, int d) { return gathered(memory, h, d); });
}
