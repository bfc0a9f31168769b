// Greedy, or the largest logit infinite: its first index. Otherwise argmax(logit / T + gumbel(seed, output index,
// token)) over the tokens that min-p, then top-k, then top-p keep: one draw, no sort, no dependence on row, batch or
// step. Block (b, m): row m, the b-th part of it; the first block ends it.
#include "kernels_src/device/cluster.cuh"
#include "kernels_src/sampling/kept_tokens.cuh"
#include "kernels_src/sampling/pivot_draw.cuh"
#include "kernels_src/sampling/sample.h"

namespace nodewright {

constexpr int kParts = static_cast<int>(kBlocksOfRow), kWarps = static_cast<int>(kLogitRowThreads / 32);

// In shared memory, at the same places in every block.
struct Shared {
  BinsPlace bins;                // [kBins]
  ScoredToken *own_list, *list;  // [kMostListed] of the block, in place of its own bins; of the row, in place of sums
  uint32_t* keys;                // [kMostListed] of the row's list, in place of sums, too
  unsigned long long* weights;   // [kMostListed] where the block's own list has been
  float* tops;                   // [kSpans][kSampleThreads], in place of bins and saved quads
  SavedQuads saved;
  unsigned long long* sums;  // [32]
  ScoredToken* scratch;      // [32]
  ScoredToken* best;         // [1]
  int* listed;               // [1]
  NoiseState* noise;         // [1]
  KeptSums* kept;            // [1]
};

static_assert(sizeof(float) * kSpans * kSampleThreads <= kLogitBins * kBytesOfBin + sizeof(float4) * kSampleSavedQuads);

NODEWRIGHT_DEVICE Shared shared_of_block() {
  unsigned char* next = shared_memory();
  const auto take = [&](unsigned bytes) {
    unsigned char* taken = next;
    next += bytes;
    return taken;
  };
  Shared shared;
  shared.bins = {reinterpret_cast<uint32_t*>(take(kLogitBins * kBytesOfBin)), kBins};
  shared.own_list = reinterpret_cast<ScoredToken*>(shared.bins.counts());
  shared.list = reinterpret_cast<ScoredToken*>(shared.bins.count_sum());
  shared.keys = reinterpret_cast<uint32_t*>(shared.list + kMostListed);
  shared.weights = reinterpret_cast<unsigned long long*>(kParts > 1 ? shared.own_list : shared.list);
  shared.tops = reinterpret_cast<float*>(shared.bins.base);
  shared.saved.quads = reinterpret_cast<float4*>(take(kSampleSavedQuads * sizeof(float4)));
  shared.saved.places = reinterpret_cast<int*>(take(kSampleSavedQuads * sizeof(int)));
  shared.sums = reinterpret_cast<unsigned long long*>(take(32 * 8));
  shared.scratch = reinterpret_cast<ScoredToken*>(take(32 * sizeof(ScoredToken)));
  shared.best = reinterpret_cast<ScoredToken*>(take(sizeof(ScoredToken)));
  shared.listed = reinterpret_cast<int*>(take(8));
  shared.noise = reinterpret_cast<NoiseState*>(take(sizeof(NoiseState)));
  shared.kept = reinterpret_cast<KeptSums*>(take(sizeof(KeptSums)));
  shared.saved.count = reinterpret_cast<int*>(take(8));
  return shared;
}

// The row's best in the first block: of what all of them are sure of, and of what they have listed. False in all, with
// nothing done: more is listed than one block takes.
NODEWRIGHT_DEVICE bool best_of_blocks(ScoredToken& best, const SampledRow& row, const KeptBins& kept,
                                      const Shared& shared) {
  if (kept.sure > 0) best = best_of_block<kWarps>(best, shared.scratch);
  if (threadIdx.x == 0) *shared.best = best;
  sync_blocks<kParts>();
  // A lane and a warp for each block.
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  uint32_t count = kParts > 1 ? 0 : static_cast<uint32_t>(*shared.listed);
  if (kParts > 1 && lane < kParts) {
    best = load_from_block(lane, shared.best);
    count = static_cast<uint32_t>(load_from_block(lane, shared.listed));
  }
  const uint32_t summed = kParts > 1 ? RunningSum::over_lanes({count, 0}).count : count;
  const int listed = static_cast<int>(__shfl_sync(0xffffffffu, summed, 31));
  if (listed > kMostListed) return false;
  const bool first = kParts == 1 || cluster_rank() == 0;
  if constexpr (kParts > 1) {
    if (first) {
      best = best_of_warp(best);
      const auto of_block = static_cast<int>(__shfl_sync(0xffffffffu, count, warp));
      ScoredToken* const place = shared.list + __shfl_sync(0xffffffffu, summed - count, warp);
      NODEWRIGHT_NO_UNROLL
      for (int i = lane; i < of_block; i += 32) place[i] = load_from_block(warp, shared.own_list + i);
    }
    cluster_arrive();
  }
  __syncthreads();
  if (first && listed > 0) {
    const ScoredToken drawn =
        draw_listed(row, kept.last, *shared.kept, kParts > 1 ? shared.list : shared.own_list, listed, shared.keys,
                    shared.weights, reinterpret_cast<uint32_t*>(shared.sums));
    best = better(best, best_of_block<kWarps>(drawn, shared.scratch));
  }
  if constexpr (kParts > 1) cluster_wait();  // no block's memory goes before all have read it
  return true;
}

}  // namespace nodewright

// Two blocks an SM, so that those of 64 rows run at once.
NODEWRIGHT_KERNEL_OF(sample, Sample, kSampleThreads, 2) {
  release_dependents();
  if constexpr (kParts > 1) cluster_arrive_relaxed();  // all it says is that the block has started
  const int part = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int live = load_settled(args.n_live.data), sequence = load_settled(args.sequences.data + row);
  const float temperature = load_settled(args.temperature.data + row);
  const bool greedy = !(temperature >= kLeastTemperature), has_best = args.best.count > 0;
  const Shared shared = shared_of_block();
  const int vocab = static_cast<int>(args.vocab), share = (vocab + 4 * kParts - 1) / (4 * kParts) * 4;
  const int first = part * share;
  SampledRow sampled{.logits = args.logits.data + row * args.logits_stride + first,
                     .first = first,
                     .count = max(0, min(share, vocab - first)),
                     .k = load_settled(args.top_k.data + row),
                     .p = load_settled(args.top_p.data + row),
                     .noise = shared.noise};
  const float min_p = args.min_p.count > 0 ? load_settled(args.min_p.data + row) : 0.0f;
  if (greedy || sampled.k < 0 || sampled.k >= vocab) sampled.k = 0;
  const int parts = has_best ? static_cast<int>(static_cast<unsigned>(args.best.count) / gridDim.y) : 0;
  const bool walks = !has_best || sampled.k > parts;
  const SpanTops spans = SpanTops::of(shared.tops, sampled.count);
  // After a cluster's barrier nothing is in L1, so this one comes before what is read twice.
  if constexpr (kParts > 1) cluster_wait();
  wait_for_inputs();
  if (row >= live || (greedy && has_best && part != 0)) return;
  if (threadIdx.x == 0)
    *shared.noise = NoiseState{args.seed.data[row], static_cast<uint32_t>(args.output_index.data[row])};

  // The largest logit; a NaN wins over everything and fails the row. Top-k wants k of them, of a thread each.
  ScoredToken best{-INFINITY, -1};
  if (walks) best = best_quad(sampled, spans);
  float top_of_thread = best.score;
  if (has_best) best = best_of_parts(args.best.data + row * parts, parts);
  if (!walks) top_of_thread = best.score;
  best = best_of_block<kWarps>(best, shared.scratch);
  float least = -INFINITY;  // of top-k
  if (sampled.k > 0) least = least_of_top_k(best.score, top_of_thread, sampled.k);
  if constexpr (kParts > 1) {
    if (walks) {
      float of_share = least;
      if (sampled.k > 0) of_share = least_of_top_k(best.score, top_of_thread, (sampled.k + kParts - 1) / kParts);
      meet_bounds<kParts>(best, least, of_share, reinterpret_cast<BlockBound*>(shared.sums));
    }
  }

  // An infinite one is nothing to weigh the others against.
  const bool draws = !greedy && best.token != kNotANumber && fabsf(best.score) < INFINITY;
  if (draws) {
    sampled.top = best.score;
    sampled.temperature = temperature;
    sampled.inverse = 1.0f / temperature;
    sampled.least = fmaxf(least, min_p > 0.0f ? sampled.top + temperature * logf(min_p) : -INFINITY);
    if (sampled.k == 0) {
      best = draw_by_pivots<kParts>(sampled, vocab, reinterpret_cast<PivotPlace*>(shared.bins.base), shared.scratch);
    } else {
      // What reaches `least` is little, and the limits are found in it: first without bins.
      bool done = false;
      NODEWRIGHT_NO_UNROLL
      for (int tries = sampled.k <= kMostListed ? 2 : 1; tries > 0 && !done; --tries) {
        if (threadIdx.x == 0) *shared.listed = *shared.saved.count = 0, *shared.kept = {};
        __syncthreads();
        KeptBins kept{.sure = 0, .high = kBins, .last = 0};
        best = ScoredToken{-INFINITY, -1};
        if (tries == 1) {
          kept = kept_bins(sampled, WeightedBins<kParts>{shared.bins, shared.sums}, shared.saved, shared.kept);
          best = draw_surely_kept(sampled, kept, shared.saved, shared.own_list, shared.listed);
        } else if (walks) {
          list_spans(sampled, spans, shared.saved.places, shared.saved.count, shared.own_list, shared.listed);
        } else {
          list_row(sampled, shared.own_list, shared.listed);
        }
        done = best_of_blocks(best, sampled, kept, shared);
        if (!done) sync_blocks<kParts>();
      }
      if (!done) best.token = kNotANumber;  // the best logits that came are not those of the row
    }
  }
  if (threadIdx.x == 0 && part == 0) {
    int token = best.token == kNotANumber ? -1 : best.token;
    if (!draws && !has_best && token >= 0)
      while (sampled.logits[token] != best.score) ++token;
    args.tokens.data[row] = token;
    if (args.delivered.count > 0) args.delivered.data[row] = token;
    args.last_token.data[sequence] = token;
  }
}
