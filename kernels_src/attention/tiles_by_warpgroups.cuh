// attend_tiles with wgmma: each warpgroup but the last has 64 rows of the tile, and the last brings keys and values
// (page_ring.cuh). A warpgroup multiplies its rows by the keys of a page while it multiplies the weights of the page
// before by their values; they take turns at it, so that one raises exponentials while another multiplies (Shah et al.,
// FlashAttention-3, 2024).
#pragma once

#include "kernels_src/attention/page_ring.cuh"
#include "kernels_src/device/warpgroups.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace nodewright {

constexpr int kWorkers = static_cast<int>(kWarpgroups);
static_assert(kWorkers == 0 || ((kHeadDim == 64 || kHeadDim == 128) && kStages >= 2));

// Registers of a thread; together those that the block begins with, 168 or 128 of each.
constexpr int kWorkerRegisters = kWorkers == 2 ? 232 : 160;
constexpr int kCopierRegisters = kWorkers == 2 ? 40 : 32;

// The order in which warpgroups multiply: as often each, one after the other. Barrier 1 + group is its turn.
struct Turns {
  int group;

  NODEWRIGHT_DEVICE explicit Turns(int of_group) : group(of_group) {
    if (group == kWorkers - 1) pass();
  }
  NODEWRIGHT_DEVICE void take() const { meet<256>(1 + group); }
  NODEWRIGHT_DEVICE void pass() const { arrive_at<256>(group == kWorkers - 1 ? 1 : 2 + group); }
  NODEWRIGHT_DEVICE void close() const {  // after the last turn of all
    if (group == 0) take();
  }
};

// A warpgroup's 64 rows.
struct Worker {
  uint32_t queries;  // [kDim / 64][64][64] in shared memory, in the 128-byte swizzle
  RingPlace keys, values;
  Turns turns;
  float scores[kPageKeys / 8][4];
  uint32_t weights[kPageKeys / 16][4];
  float keep[2];
  RowSums sums;

  NODEWRIGHT_DEVICE Worker(const PageRing& ring, int group)
      : queries(ring.queries + group * 64 * kDim * 2), keys(ring.keys()), values(ring.values()), turns(group) {
    sums.clear();
  }

  NODEWRIGHT_DEVICE void load_queries(const AttendTiles& args, const WarpRows& warp, int end, int head) {
    const int pair = static_cast<int>(threadIdx.x % 4) * 2;
    NODEWRIGHT_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const uint32_t packed = query_pair(args, warp.rows[i % 2], end, head, step * 16 + i / 2 * 8 + pair);
        const int thread = static_cast<int>(threadIdx.x % 128), row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
        const int piece = (step % 4 * 2 + i / 2) ^ row % 8;
        store_4(queries + (step / 4 * 64 + row) * 128 + (piece * 8 + pair) * 2, packed);
      }
    }
    order_stores_before_copies();
    meet<128>(1 + kWorkers + turns.group);
  }

  // Pages first to last of a run, of which the warpgroup's rows attend to from .. to; none where from > to.
  NODEWRIGHT_DEVICE void attend(const Run& run, int first, int last, int from, int to) {
    if (from > to) return skip(last - first + 1);
    skip(from - first);
    keys.wait();
    turns.take();
    begin_products();
    multiply_keys();
    turns.pass();
    wait_for_products<0>();
    weigh(run, from * kPageKeys);
    round_weights();
    NODEWRIGHT_NO_UNROLL
    for (int page = from + 1; page <= to; ++page) {
      keys.wait();
      values.wait();
      turns.take();
      begin_products();
      multiply_keys();
      multiply_values();
      turns.pass();
      wait_for_products<1>();
      weigh(run, page * kPageKeys);
      compute_first(sums.sum);
      finish_values();
      round_weights();
    }
    values.wait();
    begin_products();
    multiply_values();
    finish_values();
    skip(last - to);
  }

 private:
  NODEWRIGHT_DEVICE void skip(int pages) {
    NODEWRIGHT_NO_UNROLL
    for (; pages > 0; --pages) {
      keys.full().wait(keys.phase), values.full().wait(values.phase);
      turns.take(), turns.pass();
      keys.release(), values.release();
    }
  }
  NODEWRIGHT_DEVICE void multiply_keys() {
    NODEWRIGHT_UNROLL
    for (int step = 0; step < kSteps; ++step)
      multiply_by_rows(scores, swizzled_matrix(queries + step / 4 * 64 * 128 + step % 4 * 32, 0),
                       swizzled_matrix(keys.address() + step / 4 * kBlockBytes + step % 4 * 32, 0), step > 0);
    close_products();
  }
  NODEWRIGHT_DEVICE void multiply_values() {
    NODEWRIGHT_UNROLL
    for (int k = 0; k < kPageKeys / 16; ++k)
      add_by_columns(sums.values, weights[k], swizzled_matrix(values.address() + k * 16 * 128, kBlockBytes));
    close_products();
  }
  NODEWRIGHT_DEVICE void finish_values() {
    wait_for_products<0>();
    hold(sums.values), hold(weights);
    values.release();
  }
  // Scores, which have come, become powers of two. The values are rescaled by `keep` when nothing is added to them any
  // more.
  NODEWRIGHT_DEVICE void weigh(const Run& run, int key0) {
    hold(scores);
    keys.release();
    mask_scores(scores, run, key0);
    float base[2];
    sums.raise(scores, base, keep);
    NODEWRIGHT_UNROLL
    for (int r = 0; r < 2; ++r) {
      sums.sum[r] *= keep[r];
      NODEWRIGHT_UNROLL
      for (int n = 0; n < kPageKeys / 8; ++n) {
        scores[n][2 * r] = power_of_two(scores[n][2 * r] - base[r]);
        scores[n][2 * r + 1] = power_of_two(scores[n][2 * r + 1] - base[r]);
        sums.sum[r] += scores[n][2 * r] + scores[n][2 * r + 1];
      }
    }
  }
  NODEWRIGHT_DEVICE void round_weights() {
    sums.rescale_values(keep);
    NODEWRIGHT_UNROLL
    for (int k = 0; k < kPageKeys / 16; ++k) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 4; ++i)
        weights[k][i] = round_pair(scores[2 * k + i / 2][i % 2 * 2], scores[2 * k + i / 2][i % 2 * 2 + 1]);
    }
  }
  // ptxas would move the exponentials to where products no longer run.
  NODEWRIGHT_DEVICE static void compute_first(const float (&sum)[2]) {
    if (__any_sync(0xffffffffu, sum[0] < 0.0f || sum[1] < 0.0f)) asm volatile("trap;");  // never
  }
};

NODEWRIGHT_DEVICE void copy_pages(const AttendTiles& args, const PageRing& ring, int first, int end, int kv_head) {
  if constexpr (kFp8Cache) {
    Fp8Copier copier(ring);
    for_each_run(args, first, end, [&](int run, int run_end, const int* table) {
      const int oldest = oldest_key(args.positions.data[run], static_cast<int>(args.window)),
                last = args.positions.data[run_end - 1];
      NODEWRIGHT_NO_UNROLL
      for (int key0 = oldest / kPageKeys * kPageKeys; key0 <= last; key0 += kPageKeys)
        copier.request(pool_of(args.kv.data) +
                           kv_offset(table[key0 / kPageKeys], 0, kv_head, 0, kKvHeads, kPageSize, kPaddedHeadDim),
                       oldest - key0, last + 1 - key0);
    });
    copier.finish();
    return;
  }
  RingPlace keys = ring.keys(), values = ring.values();
  for_each_run(args, first, end, [&](int run, int run_end, const int* table) {
    const PageCopier copier{args.kv.data + kv_head * kPageSize * kPaddedHeadDim, table,
                            oldest_key(args.positions.data[run], static_cast<int>(args.window)),
                            args.positions.data[run_end - 1]};
    NODEWRIGHT_NO_UNROLL
    for (int key0 = copier.oldest / kPageKeys * kPageKeys; key0 <= copier.last; key0 += kPageKeys)
      copier.request(0, key0, keys), copier.request(1, key0, values);
  });
}

NODEWRIGHT_DEVICE void attend_by_warpgroups(const AttendTiles& args, int first, int end, int head, int kv_head) {
  const PageRing ring;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0);
  if (group == kWorkers) {
    give_registers<kCopierRegisters>();
    if (!kInBulk || threadIdx.x % 128 < 32) copy_pages(args, ring, first, end, kv_head);
    if constexpr (!kInBulk) asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }
  take_registers<kWorkerRegisters>();
  const WarpRows mine = rows_of_warp(first + static_cast<int>(threadIdx.x / 32) * 16, end);
  const int group_first = first + group * 64, group_end = min(group_first + 64, end);
  Worker worker(ring, group);
  worker.load_queries(args, mine, end, head);
  for_each_run(args, first, end, [&](int run_first, int run_end, const int*) {
    const Run run = run_of(args, mine, run_first, run_end);
    const int own_first = max(group_first, run_first), own_end = min(group_end, run_end);
    const int from = oldest_key(run.first_position + own_first - run_first, run.window) / kPageKeys;
    const int to = own_first < own_end ? (run.first_position + own_end - 1 - run_first) / kPageKeys : from - 1;
    worker.sums.begin(run);
    worker.attend(run, run.oldest / kPageKeys, run.last_position / kPageKeys, from, to);
    worker.sums.store(args, mine, run, head);
  });
  worker.turns.close();
}

}  // namespace nodewright

#endif
