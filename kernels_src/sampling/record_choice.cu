// log p(token) = logit - log(sum(exp(logits))), and the same of the likeliest. The sum is 64-bit fixed point, so that
// its order does not matter. Of each block's part, only logits that may be among the likeliest are compared: there are
// `wanted` threads whose largest lie as high. Block (b, m): row m, the b-th part of it; the first block ends it.
#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/weighted_bins.cuh"

namespace nodewright {

constexpr int kParts = static_cast<int>(kBlocksOfRow), kThreads = static_cast<int>(kLogitRowThreads);
constexpr int kMostCandidates = kBins * static_cast<int>(kBytesOfBin) / 8;  // the list lies where the bins were

// In shared memory, at the same places in every block.
struct Shared {
  BinsPlace bins;
  ScoredToken* list;           // [kMostCandidates] in place of the bins
  unsigned long long* sums;    // [32]
  ScoredToken* scratch;        // [32]
  ScoredToken* parts;          // [kMostBlocksOfRow]
  ScoredToken* likeliest;      // [kMostLogprobs] of the block
  unsigned long long* weight;  // [1] of the block
  int* listed;                 // [1]
};

NODEWRIGHT_DEVICE Shared shared_of_block() {
  Shared shared;
  auto* words = reinterpret_cast<uint32_t*>(shared_memory());
  shared.bins = {words, kBins};
  shared.list = reinterpret_cast<ScoredToken*>(words);
  shared.sums = reinterpret_cast<unsigned long long*>(words + kLogitBins * kBytesOfBin / 4);
  shared.scratch = reinterpret_cast<ScoredToken*>(shared.sums + 32);
  shared.parts = shared.scratch + 32;
  shared.likeliest = shared.parts + kMostBlocksOfRow;
  shared.weight = reinterpret_cast<unsigned long long*>(shared.likeliest + kMostLogprobs);
  shared.listed = reinterpret_cast<int*>(shared.weight + 1);
  return shared;
}

NODEWRIGHT_DEVICE ScoredToken missing() { return {-INFINITY, 0x7fffffff}; }  // comes after all others

NODEWRIGHT_DEVICE bool comes_before(ScoredToken a, ScoredToken b) {
  return a.score > b.score || (a.score == b.score && a.token < b.token);
}

// Those of the list with fewer than `wanted` before them, each at its place.
NODEWRIGHT_CALLED void rank(const ScoredToken* list, int listed, int wanted, ScoredToken* ranked) {
  NODEWRIGHT_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < listed; i += kThreads) {
    int before = 0;
    NODEWRIGHT_NO_UNROLL
    for (int j = 0; j < listed && before < wanted; ++j) before += comes_before(list[j], list[i]) ? 1 : 0;
    if (before < wanted) ranked[before] = list[i];
  }
  __syncthreads();
}

// One after the other, a pass over the part each: where too many are equal to be listed.
NODEWRIGHT_CALLED void find_in_turn(const float* logits, int first, int count, int wanted, ScoredToken* likeliest,
                                    ScoredToken* scratch) {
  ScoredToken last{INFINITY, -1};
  NODEWRIGHT_NO_UNROLL
  for (int k = 0; k < wanted; ++k) {
    ScoredToken best{-INFINITY, -1};
    NODEWRIGHT_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      const ScoredToken here{logits[i], first + i};
      if (comes_before(last, here)) best = better(best, here);
    }
    best = best_of_block<kThreads / 32>(best, scratch);
    if (best.token < 0) best = missing();
    if (threadIdx.x == 0) likeliest[k] = best;
    last = best;
  }
  __syncthreads();
}

// The likeliest of the block's part, and none where it has fewer; and what the whole part weighs.
NODEWRIGHT_DEVICE void look_at_part(const float* logits, int first, int count, float top, float top_of_thread,
                                    int wanted, const Shared& shared) {
  int cut = kBins - 1;
  if (wanted > 0 && wanted <= count / 4) {
    const WeightedBins<1> bins{shared.bins, shared.sums};
    bins.clear();
    bins.place.add(bin_of(top_of_thread - top), 0);
    bins.sum();
    cut = bins.reaching_count(static_cast<uint32_t>(wanted));
  }
  if (threadIdx.x < kMostLogprobs) shared.likeliest[threadIdx.x] = missing();
  if (threadIdx.x == 0) *shared.listed = 0, *shared.weight = 0;
  __syncthreads();
  unsigned long long weight = 0;
  for_each_quad(logits, count, [&](float4 quad, int i, int n) {
    const float v[4] = {quad.x, quad.y, quad.z, quad.w};
    NODEWRIGHT_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (e >= n) continue;
      const float x = v[e] - top;
      weight += static_cast<unsigned long long>(expf(x) * 1099511627776.0f);  // 2^40: of 2^18 logits within 2^-22
      if (wanted <= 0 || bin_of(x) > cut) continue;
      if (const int place = atomicAdd(shared.listed, 1); place < kMostCandidates)
        shared.list[place] = ScoredToken{v[e], first + i + e};
    }
  });
  NODEWRIGHT_NO_UNROLL
  for (int offset = 16; offset > 0; offset /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, offset);
  if (threadIdx.x % 32 == 0) shared.sums[threadIdx.x / 32] = weight;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned long long all = 0;
    NODEWRIGHT_NO_UNROLL
    for (int w = 0; w < kThreads / 32; ++w) all += shared.sums[w];
    *shared.weight = all;
  }
  const int listed = *shared.listed;
  if (listed > kMostCandidates)
    find_in_turn(logits, first, count, wanted, shared.likeliest, shared.scratch);
  else
    rank(shared.list, listed, wanted, shared.likeliest);
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(record_choice, RecordChoice, kLogitRowThreads) {
  release_dependents();
  if constexpr (kParts > 1) cluster_arrive();
  wait_for_inputs();
  const int part = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  if (row >= args.n_live.data[0]) return;
  const int vocab = static_cast<int>(args.vocab), forced = args.forced.data[row];
  const int token = forced >= 0 ? forced : args.chosen.data[row];
  const int wanted = token < 0 ? -1 : min(args.logprobs.data[row], kMostLogprobs);
  const bool ends = part == 0 && threadIdx.x == 0;
  int32_t* top_tokens = args.top_tokens.data + row * kMostLogprobs;
  float* top_logprobs = args.top_logprobs.data + row * kMostLogprobs;
  if (ends) {
    const bool kept = token < 0 || forced >= 0 || args.shaped.data[row * args.stride + token] != -INFINITY;
    if (token >= 0 && args.counted.data[row] != 0) ++args.counts.data[args.sequences.data[row] * args.stride + token];
    args.kept.data[row] = kept ? 1 : 0;
    if (wanted < 0) args.tokens.data[row] = token, args.logprob.data[row] = 0.0f;
  }
  if (wanted < 0) {
    if (part == 0 && threadIdx.x < kMostLogprobs) top_tokens[threadIdx.x] = -1, top_logprobs[threadIdx.x] = 0.0f;
    return;
  }

  const Shared shared = shared_of_block();
  const int share = (vocab + 4 * kParts - 1) / (4 * kParts) * 4, first = part * share;
  const int count = max(0, min(share, vocab - first));
  const float* row_logits = args.logits.data + args.rows.data[row] * args.stride;
  const float* logits = row_logits + first;
  ScoredToken best{-INFINITY, -1};
  for_each_logit(logits, count, [&](float v, int i) { keep_best(best, v, first + i); });
  const float top_of_thread = best.score;
  best = best_of_block<kThreads / 32>(best, shared.scratch);
  if constexpr (kParts > 1) {
    cluster_wait();
    if (static_cast<int>(threadIdx.x) < kParts)
      store_to_block(static_cast<int>(threadIdx.x), shared.parts + part, best);
    sync_blocks<kParts>();
    NODEWRIGHT_NO_UNROLL
    for (int i = 0; i < kParts; ++i) best = better_part(best, shared.parts[i]);
  }
  look_at_part(logits, first, count, best.score, top_of_thread, wanted, shared);
  sync_blocks<kParts>();
  if constexpr (kParts > 1) {
    if (part != 0) {  // its memory stays until the first block has read it
      cluster_arrive();
      cluster_wait();
      return;
    }
  }
  unsigned long long weight = *shared.weight;
  const ScoredToken* likeliest = shared.likeliest;
  if constexpr (kParts > 1) {
    int listed = 0;
    NODEWRIGHT_NO_UNROLL
    for (int r = 0; r < kParts; ++r) {
      if (r > 0) weight += load_from_block(r, shared.weight);
      if (static_cast<int>(threadIdx.x) < wanted)
        shared.list[listed + static_cast<int>(threadIdx.x)] = load_from_block(r, shared.likeliest + threadIdx.x);
      listed += wanted;
    }
    cluster_arrive();
    if (threadIdx.x < kMostLogprobs) shared.scratch[threadIdx.x] = missing();
    __syncthreads();
    rank(shared.list, listed, wanted, shared.scratch);
    likeliest = shared.scratch;
  }
  const float top = best.score, log_sum = logf(static_cast<float>(weight) * (1.0f / 1099511627776.0f));
  const bool has_nan = best.token == kNotANumber;
  if (ends) {
    args.tokens.data[row] = has_nan ? -1 : token;
    args.logprob.data[row] = has_nan ? 0.0f : row_logits[token] - top - log_sum;
    if (args.log_sum.count > 0) args.log_sum.data[row] = has_nan ? 0.0f : top + log_sum;
  }
  if (threadIdx.x < kMostLogprobs) {
    const bool found =
        !has_nan && static_cast<int>(threadIdx.x) < wanted && likeliest[threadIdx.x].token != missing().token;
    top_tokens[threadIdx.x] = found ? likeliest[threadIdx.x].token : -1;
    top_logprobs[threadIdx.x] = found ? likeliest[threadIdx.x].score - top - log_sum : 0.0f;
  }
}
