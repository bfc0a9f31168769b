// What min-p, top-k and top-p keep of a row with top-k, and the best of it once noise is added.
//
// What reaches a bound of the k-th largest logit is listed, and the limits are found in the list. Where it is too long,
// a histogram of the distance to the largest says in which bins the limits fall: what lies above them is kept, what
// lies below is not, and the few elements in those bins are listed. Where they are too many (equal logits), the limits
// are found by the logits' bits, eight at a time.
#pragma once

#include "kernels_src/sampling/row_bound.cuh"
#include "kernels_src/sampling/sample.h"

namespace nodewright {

// Listed logits of a row: as many as threads. The list lies where the bins were.
constexpr int kMostListed = static_cast<int>(kLogitRowThreads);

// What is kept of a row: bins before `sure`, of keys from least_key on; in `sure` to `high` and in `last` it is to be
// seen, among the elements listed.
struct KeptBins {
  int sure = kBins, high = -1, last = -1;
  uint32_t least_key = 0;
};

// Beside it, of the row, in shared memory.
struct KeptSums {
  uint32_t count_before_last, listed_before_last;             // elements, and those of them that are listed
  unsigned long long weight_before_sure, weight_before_last;  // what lies before these bins weighs
};

// The quads that hold what may be kept, so that they are read once more and not the whole part.
constexpr int kMostSaved = static_cast<int>(kSampleSavedQuads);
struct SavedQuads {
  float4* quads;  // [kMostSaved]
  int* places;    // [kMostSaved] in the block's part
  int* count;     // [1]; more than kMostSaved: some are missing

  NODEWRIGHT_DEVICE void save(float4 quad, int place) const {
    const int next = atomicAdd(count, 1);
    if (next >= kMostSaved) return;
    quads[next] = quad;
    places[next] = place;
  }
};

// The sum over all threads of all blocks.
template <int kBlocks>
NODEWRIGHT_DEVICE unsigned long long sum_of_weights(const WeightedBins<kBlocks>& bins, unsigned long long weight) {
  bins.clear();
  add_of_warp(bins.place, 0, weight);
  bins.sum();
  return bins.weight_to(0);
}

template <int kBlocks>
NODEWRIGHT_DEVICE KeptBins exactly_kept(const SampledRow& row, const WeightedBins<kBlocks>& all) {
  const WeightedBins<kBlocks> bins{{all.place.base, kDigits}, all.scratch};
  KeptBins kept;
  const auto each = [&](auto use) {
    NODEWRIGHT_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < row.count; i += static_cast<int>(kLogitRowThreads)) {
      const float v = row.logits[i];
      if (const uint32_t key = ordered_key(v); v >= row.least && key >= kept.least_key)
        use(key, weight_of(row.distance(v)));
    }
  };
  NODEWRIGHT_NO_UNROLL
  for (int by_weight = 0; by_weight < (row.p < 1.0f ? 2 : 1); ++by_weight) {
    unsigned long long weight = 0, wanted = static_cast<unsigned long long>(row.k);
    if (by_weight == 1) {
      each([&](uint32_t, uint64_t of_this) { weight += of_this; });
      wanted = share_of(sum_of_weights(bins, weight), row.p);
    }
    kept.least_key = max(kept.least_key, key_reaching(bins, by_weight == 1, wanted, each));
  }
  return kept;
}

// For a row with top-k. All threads of all blocks; each gets the same.
template <int kBlocks>
NODEWRIGHT_DEVICE KeptBins kept_bins(const SampledRow& row, const WeightedBins<kBlocks>& bins, const SavedQuads& saved,
                                     KeptSums* sums) {
  const bool weighs = row.p < 1.0f;
  bins.clear();
  for_each_quad(row.logits, row.count, [&](float4 quad, int i, int n) {
    if (largest_of(quad) < row.least) return;
    saved.save(quad, i);
    NODEWRIGHT_NO_UNROLL
    for (int e = 0; e < n; ++e)
      if (const float v = logit_at(quad, e); v >= row.least)
        bins.place.add(bin_of(row.distance(v)), weighs ? weight_of(row.distance(v)) : 0);
  });
  bins.sum();

  KeptBins kept;
  kept.last = kept.sure = bins.reaching_count(static_cast<uint32_t>(row.k));
  KeptSums of_row{bins.count_to(kept.last - 1), 0, 0, bins.weight_to(kept.last - 1)};
  if (weighs) {  // top-k leaves between weight_before_last and what the last bin reaches
    kept.high = min(bins.reaching_weight(share_of(bins.weight_to(kept.last), row.p)), kept.last);
    kept.sure = min(bins.reaching_weight(share_of(of_row.weight_before_last, row.p)), kept.high);
    of_row.weight_before_sure = bins.weight_to(kept.sure - 1);
  }
  uint32_t listed = kept.high >= kept.sure ? bins.count_to(kept.high) - bins.count_to(kept.sure - 1) : 0;
  of_row.listed_before_last =
      kept.last > kept.high ? listed : bins.count_to(kept.last - 1) - bins.count_to(kept.sure - 1);
  if (kept.last > kept.high) listed += bins.count_to(kept.last) - bins.count_to(kept.last - 1);
  if (threadIdx.x == 0) *sums = of_row;
  return listed <= static_cast<uint32_t>(kMostListed) ? kept : exactly_kept(row, bins);
}

// Puts what reaches `least` of four logits into `list`, as logit and token from `token` on, and counts it, also what is
// more than a list takes.
NODEWRIGHT_CALLED void list_quad(float4 quad, int token, float least, ScoredToken* list, int* listed) {
  NODEWRIGHT_NO_UNROLL
  for (int e = 0; e < 4; ++e) {
    const float v = logit_at(quad, e);
    if (!(v >= least)) continue;
    if (const int place = atomicAdd(listed, 1); place < kMostListed) list[place] = ScoredToken{v, token + e};
  }
}

// The same of the block's part. row.least is finite.
NODEWRIGHT_DEVICE void list_row(const SampledRow& row, ScoredToken* list, int* listed) {
  for_each_quad(row.logits, row.count, [&](float4 quad, int i, int) {
    if (largest_of(quad) >= row.least) list_quad(quad, row.first + i, row.least, list, listed);
  });
}

// The same, of spans whose top reaches it. `places`: [kMostListed] of shared memory, of the first logits of a thread in
// such a span; `count`: of them, 0 before. The list may lie where the tops are.
NODEWRIGHT_DEVICE void list_spans(const SampledRow& row, const SpanTops& spans, int* places, int* count,
                                  ScoredToken* list, int* listed) {
  const int thread = static_cast<int>(threadIdx.x), log_quads = spans.log_width - kLogStep;
  NODEWRIGHT_NO_UNROLL
  for (int i = thread * 4; i < row.count; i += 1 << spans.log_width) {
    if (!(spans.top(i) >= row.least)) continue;
    if (const int place = atomicAdd(count, 1); place < kMostListed)
      places[place] = i;
    else
      atomicAdd(listed, kMostListed + 1);  // each has one at least
  }
  __syncthreads();
  const int quads = min(*count, kMostListed) << log_quads;
  NODEWRIGHT_NO_UNROLL
  for (int q = thread; q < quads; q += static_cast<int>(kLogitRowThreads)) {
    const int i = places[q >> log_quads] + ((q & ((1 << log_quads) - 1)) << kLogStep);
    if (i >= row.count) continue;
    const float4 quad = i + 4 <= row.count ? load_fp32_4(row.logits + i) : quad_at_end(row.logits, i, row.count);
    if (largest_of(quad) >= row.least) list_quad(quad, row.first + i, row.least, list, listed);
  }
}

// The best of what is surely kept; the rest that may be goes to `list`, as logit and token, and is counted, also what
// is more than a list takes. `kept` and `saved`: as kept_bins() leaves them.
NODEWRIGHT_DEVICE ScoredToken draw_surely_kept(const SampledRow& row, const KeptBins& kept, const SavedQuads& saved,
                                               ScoredToken* list, int* listed) {
  ScoredToken best{-INFINITY, -1};
  const float least = fmaxf(row.least, row.least_of(max(kept.sure - 1, max(kept.high, kept.last))));
  const int* places = *saved.count <= kMostSaved ? saved.places : nullptr;
  const float* from = places != nullptr ? &saved.quads->x : row.logits;
  for_each_quad(from, places != nullptr ? 4 * *saved.count : row.count, [&](float4 quad, int i, int) {
    if (largest_of(quad) < least) return;
    if (places != nullptr) i = places[i / 4];
    const int n = min(4, row.count - i);
    const auto token = static_cast<uint32_t>(row.first + i);
    unsigned sure = 0;
    NODEWRIGHT_NO_UNROLL
    for (int e = 0; e < n; ++e) {
      const float v = logit_at(quad, e);
      const int bin = bin_of(row.distance(v));
      if (v < row.least) continue;
      if (bin < kept.sure)
        sure |= (ordered_key(v) >= kept.least_key ? 1u : 0u) << e;
      else if (bin <= kept.high || bin == kept.last)
        if (const int place = atomicAdd(listed, 1); place < kMostListed)
          list[place] = ScoredToken{v, static_cast<int32_t>(token) + e};
    }
    if (sure == 0) return;
    const uint4 words = noise_of_quad(row.noise, token / 4);
    NODEWRIGHT_NO_UNROLL
    for (int e = 0; e < n; ++e) {
      if ((sure >> e & 1u) == 0) continue;
      const float score = row.distance(logit_at(quad, e)) + gumbel_noise(word_at(words, e));
      best = better(best, ScoredToken{score, static_cast<int32_t>(token) + e});  // quads come in any order
    }
  });
  return best;
}

// The best of the row's `listed` elements that the limits keep, in every thread its own: up to 32 lanes share an
// element and see what lies above it. One block. `keys` and `weights`: [kMostListed] of shared memory; `sum`: three
// words more.
NODEWRIGHT_DEVICE ScoredToken draw_listed(const SampledRow& row, int last, const KeptSums& kept,
                                          const ScoredToken* list, int listed, uint32_t* keys,
                                          unsigned long long* weights, uint32_t* sum) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < listed) {
    keys[thread] = ordered_key(list[thread].score);
    weights[thread] = weight_of(row.distance(list[thread].score));
  }
  if (thread < 3) sum[thread] = 0;
  __syncthreads();
  int log_lanes = 0;
  while (log_lanes < 5 && listed << (log_lanes + 1) <= kMostListed) ++log_lanes;
  const int mine = thread >> log_lanes, lanes = 1 << log_lanes;
  bool keeps = mine < listed;
  const ScoredToken token = keeps ? list[mine] : ScoredToken{-INFINITY, -1};
  const uint32_t key = keeps ? keys[mine] : 0;
  uint32_t count_above = 0;  // of those listed
  unsigned long long weight_above = 0;
  NODEWRIGHT_UNROLL_BY(4)
  for (int i = thread & (lanes - 1); keeps && i < listed; i += lanes) {
    const bool above = keys[i] > key;
    count_above += above ? 1 : 0;
    weight_above += above ? weights[i] : 0;
  }
  NODEWRIGHT_NO_UNROLL
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    count_above += __shfl_xor_sync(0xffffffffu, count_above, offset);
    weight_above += __shfl_xor_sync(0xffffffffu, weight_above, offset);
  }
  // In front of the last bin top-k keeps all, the listed ones included.
  const bool may_go = keeps && bin_of(row.distance(token.score)) >= last;
  if (may_go) keeps = kept.count_before_last - kept.listed_before_last + count_above < static_cast<uint32_t>(row.k);
  const BinsPlace of_last{sum, 1};
  add_of_warp(of_last, 0, may_go && keeps && (thread & (lanes - 1)) == 0 ? weights[mine] : 0);
  __syncthreads();
  if (row.p < 1.0f)
    keeps =
        keeps && kept.weight_before_sure + weight_above < share_of(kept.weight_before_last + of_last.weight(0), row.p);
  if (!keeps) return ScoredToken{-INFINITY, -1};
  const uint4 words = noise_of_quad(row.noise, static_cast<uint32_t>(token.token) / 4);
  return ScoredToken{row.distance(token.score) + gumbel_noise(word_at(words, token.token % 4)), token.token};
}

}  // namespace nodewright
