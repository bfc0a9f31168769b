// A block's part of a row that is drawn from: where its logits lie below the largest, what min-p, top-k and top-p keep
// of them, and the best of what is kept once noise is added.
//
// A histogram of the distance to the largest says in which bins the limits fall. What lies above them is kept and what
// lies below is not; the few elements in those bins are listed, and the limits found among them exactly. Where they are
// too many (equal logits), the limits are found by the logits' bits instead, eight at a time.
#pragma once

#include "kernels_src/sampling/philox.cuh"
#include "kernels_src/sampling/sample.h"
#include "kernels_src/sampling/weighted_bins.cuh"

namespace nodewright {

// Listed logits of a row: as many as threads. The list lies where the bins were.
constexpr int kMostListed = static_cast<int>(kLogitRowThreads);

constexpr float kLeastFinite = -3.402823466e38f;

NODEWRIGHT_DEVICE uint64_t weight_of(float x) { return static_cast<uint64_t>(expf(x) * 4294967296.0f); }
NODEWRIGHT_CALLED unsigned long long share_of(unsigned long long weight, float p) {
  const auto share = static_cast<unsigned long long>(static_cast<double>(weight) * (p > 0.0f ? p : 0.0f));
  return share > 0 ? share : 1;
}

// The whole random state of a row. In shared memory: registers are few where two blocks share an SM.
struct NoiseState {
  uint64_t seed;
  uint32_t output;
};

NODEWRIGHT_CALLED uint4 noise_of_quad(const NoiseState* state, uint32_t quad) {
  return noise_words(state->seed, state->output, quad);
}

// The i-th of four. By selection, not by address, so that they stay in registers in loops over i.
NODEWRIGHT_DEVICE uint32_t word_at(uint4 words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
NODEWRIGHT_DEVICE float logit_at(float4 quad, int i) {
  return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

NODEWRIGHT_DEVICE float largest_of(float4 quad) { return fmaxf(fmaxf(quad.x, quad.y), fmaxf(quad.z, quad.w)); }

struct SampledRow {
  const float* logits;  // [count] of this block
  int first, count;     // the first one's token
  float top;            // of the whole row
  float temperature, inverse;
  float least;  // min-p or top-k leave out what is below it
  int k;        // 0: no limit
  float p;      // 1: no limit
  const NoiseState* noise;

  NODEWRIGHT_DEVICE float distance(float v) const { return (v - top) * inverse; }  // negated
  // No logit whose bin is `bin` or one before it is smaller: beside the rounding of distance() and of this.
  NODEWRIGHT_DEVICE float least_of(int bin) const {
    return bin >= kBins - 1 ? -INFINITY : top + (end_of_bin(bin) * 1.0001f - 0.001f) * temperature;
  }
  NODEWRIGHT_DEVICE bool has_limits() const { return k > 0 || p < 1.0f; }
};

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
  unsigned long long weight;                                  // of all that top-p counts
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

// Below the k-th largest logit of the row, or equal to it: `mine` of k threads, each its own logit, are not below. The
// distance to the largest is found to within 1/32. Where it is more than 512 or there are fewer, the least finite one.
NODEWRIGHT_DEVICE float least_of_top_k(float top, float mine, int k) {
  constexpr uint32_t kStep = 1u << 18, kNearest = 0x3c000000u;  // of a float's bits; 2^-7
  const auto at = [&](uint32_t steps) { return top - bits_to_float(kNearest + steps * kStep); };
  uint32_t steps = 0;
  NODEWRIGHT_NO_UNROLL
  for (uint32_t bit = 256; bit > 0; bit /= 2)
    if (__syncthreads_count(mine >= at(steps + bit - 1) ? 1 : 0) < k) steps += bit;
  return steps < 511 ? at(steps) : kLeastFinite;
}

template <int kBlocks>
NODEWRIGHT_DEVICE KeptBins exactly_kept(const SampledRow& row, const WeightedBins<kBlocks>& all,
                                        unsigned long long weight) {
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
  for (int by_weight = row.k > 0 ? 0 : 1; by_weight < (row.p < 1.0f ? 2 : 1); ++by_weight) {
    if (by_weight == 1 && row.k > 0) {
      weight = 0;
      each([&](uint32_t, uint64_t of_this) { weight += of_this; });
      weight = sum_of_weights(bins, weight);
    }
    const unsigned long long wanted = by_weight == 1 ? share_of(weight, row.p) : static_cast<unsigned long long>(row.k);
    kept.least_key = max(kept.least_key, key_reaching(bins, by_weight == 1, wanted, each));
  }
  return kept;
}

// All threads of all blocks; each gets the same.
template <int kBlocks>
NODEWRIGHT_DEVICE KeptBins kept_bins(const SampledRow& row, const WeightedBins<kBlocks>& bins, int vocab,
                                     const SavedQuads& saved, KeptSums* sums) {
  const bool weighs = row.p < 1.0f;
  int cut = kBins - 1;  // a bin after which no element can be kept
  float least = row.least;
  if (row.k == 0) {
    // All that lies behind it, be it `vocab` elements, weighs less than top-p leaves out beside the largest alone.
    const float distance = __logf(static_cast<float>(vocab)) - __logf((1.0f - row.p) * 0.99f);
    cut = distance > 0.0f ? bin_of(-distance) : 0;
    least = fmaxf(least, row.top - 23.0f * row.temperature);  // exp(-23) is below 2^-32
  }
  bins.clear();
  unsigned long long behind = 0;
  for_each_quad(row.logits, row.count, [&](float4 quad, int i, int n) {
    if (largest_of(quad) < least) return;
    saved.save(quad, i);
    NODEWRIGHT_NO_UNROLL
    for (int e = 0; e < n; ++e) {
      const float v = logit_at(quad, e), x = row.distance(v);
      const int bin = bin_of(x);
      if (v < row.least) continue;
      const uint64_t weight = weighs ? weight_of(x) : 0;
      if (bin <= cut)
        bins.place.add(bin, weight);
      else
        behind += weight;
    }
  });
  if (row.k == 0) add_of_warp(bins.place, kBins - 1, behind);
  bins.sum();

  KeptBins kept;
  KeptSums of_row{0, 0, 0, 0, bins.weight_to(kBins - 1)};
  unsigned long long most = of_row.weight;
  if (row.k > 0) {
    kept.last = kept.sure = bins.reaching_count(static_cast<uint32_t>(row.k));
    of_row.count_before_last = bins.count_to(kept.last - 1);
    of_row.weight_before_last = bins.weight_to(kept.last - 1);
    most = bins.weight_to(kept.last);
  }
  if (weighs) {  // top-k leaves between weight_before_last and `most`
    const unsigned long long least_left = row.k > 0 ? of_row.weight_before_last : most;
    kept.high = min(bins.reaching_weight(share_of(most, row.p)), row.k > 0 ? kept.last : kBins - 1);
    kept.sure = min(bins.reaching_weight(share_of(least_left, row.p)), kept.high);
    of_row.weight_before_sure = bins.weight_to(kept.sure - 1);
  }
  uint32_t listed = kept.high >= kept.sure ? bins.count_to(kept.high) - bins.count_to(kept.sure - 1) : 0;
  of_row.listed_before_last =
      kept.last > kept.high ? listed : bins.count_to(kept.last - 1) - bins.count_to(kept.sure - 1);
  if (kept.last > kept.high) listed += bins.count_to(kept.last) - bins.count_to(kept.last - 1);
  if (threadIdx.x == 0) *sums = of_row;
  return listed <= static_cast<uint32_t>(kMostListed) ? kept : exactly_kept(row, bins, of_row.weight);
}

// The best of what is surely kept; the rest that may be goes to `list`, as logit and token, and is counted, also what
// is more than a list takes. `saved` has what kept_bins() has saved, if that is what `kept` comes from.
NODEWRIGHT_DEVICE ScoredToken draw_surely_kept(const SampledRow& row, const KeptBins& kept, const SavedQuads& saved,
                                               ScoredToken* list, int* listed) {
  ScoredToken best{-INFINITY, -1};
  const float least = fmaxf(row.least, row.least_of(max(kept.sure - 1, max(kept.high, kept.last))));
  const int* places = *saved.count > 0 && *saved.count <= kMostSaved ? saved.places : nullptr;
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

// The best of the row's `listed` elements, at most one a thread, that the limits keep: each sees what lies above it.
// One block. `keys` and `weights`: [kLogitRowThreads] of shared memory; `sum`: three words more.
NODEWRIGHT_DEVICE ScoredToken draw_listed(const SampledRow& row, int last, const KeptSums& kept,
                                          const ScoredToken* list, int listed, uint32_t* keys,
                                          unsigned long long* weights, uint32_t* sum) {
  const int mine = static_cast<int>(threadIdx.x);
  ScoredToken token{-INFINITY, -1};
  uint32_t key = 0;
  unsigned long long weight = 0;
  bool keeps = mine < listed;
  if (keeps) {
    token = list[mine];
    key = ordered_key(token.score);
    weight = weight_of(row.distance(token.score));
  }
  keys[mine] = key;
  weights[mine] = weight;
  if (mine < 3) sum[mine] = 0;
  __syncthreads();
  uint32_t count_above = 0;  // of those listed
  unsigned long long weight_above = 0;
  NODEWRIGHT_UNROLL_BY(4)
  for (int i = 0; keeps && i < listed; ++i) {
    const bool above = keys[i] > key;
    count_above += above ? 1 : 0;
    weight_above += above ? weights[i] : 0;
  }
  unsigned long long mass = kept.weight;
  if (row.k > 0) {
    // In front of the last bin top-k keeps all, the listed ones included.
    const bool may_go = keeps && bin_of(row.distance(token.score)) >= last;
    if (may_go) keeps = kept.count_before_last - kept.listed_before_last + count_above < static_cast<uint32_t>(row.k);
    const BinsPlace of_last{sum, 1};
    add_of_warp(of_last, 0, may_go && keeps ? weight : 0);
    __syncthreads();
    mass = kept.weight_before_last + of_last.weight(0);
  }
  if (row.p < 1.0f) keeps = keeps && kept.weight_before_sure + weight_above < share_of(mass, row.p);
  if (!keeps) return ScoredToken{-INFINITY, -1};
  const uint4 words = noise_of_quad(row.noise, static_cast<uint32_t>(token.token) / 4);
  return ScoredToken{row.distance(token.score) + gumbel_noise(word_at(words, token.token % 4)), token.token};
}

}  // namespace nodewright
