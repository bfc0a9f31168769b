// A histogram in shared memory, summed over the blocks of a cluster, with running sums from its first bin on: how many
// elements and how much weight lie in a bin and before it. Weights are 64-bit fixed point, so that sums are exact and
// their order does not matter. An element's weight is at most 2^32.
#pragma once

#include "kernels_src/device/cluster.cuh"
#include "kernels_src/sampling/logit_row.cuh"

namespace nodewright {

constexpr int kBins = static_cast<int>(kLogitBins);
constexpr int kShiftOfBin = 16;  // 7 of the 23 bits of a float's fraction

// Distances of 0 to 8, 24, 56 and 120 in 128 bins each, the last one with all beyond; x <= 0. Monotone in x.
NODEWRIGHT_DEVICE int bin_of(float x) {
  const uint32_t beyond = float_to_bits(8.0f - x) - float_to_bits(8.0f);
  return min(static_cast<int>(beyond >> kShiftOfBin), kBins - 1);
}

template <int kBlocks>
NODEWRIGHT_DEVICE void sync_blocks() {
  if constexpr (kBlocks > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
}

// Where a histogram of `size` bins lies: at the same place of every block's shared memory.
struct BinsPlace {
  uint32_t* base;
  int size;  // at most kLogitRowThreads; a multiple of the blocks

  NODEWRIGHT_DEVICE uint32_t* counts() const { return base; }                // [size] this block's elements
  NODEWRIGHT_DEVICE uint32_t* low() const { return base + size; }            // [size] their weight, low and high half
  NODEWRIGHT_DEVICE uint32_t* high() const { return base + 2 * size; }       // [size]
  NODEWRIGHT_DEVICE uint32_t* count_sum() const { return base + 3 * size; }  // [size] up to and with the bin
  NODEWRIGHT_DEVICE unsigned long long* weight_sum() const {                 // [size]
    return reinterpret_cast<unsigned long long*>(base + 4 * size);
  }
  NODEWRIGHT_DEVICE unsigned long long weight(int bin) const {
    return low()[bin] + (static_cast<unsigned long long>(high()[bin]) << 32);
  }
  // Each carry out of the low half is seen by exactly one add.
  NODEWRIGHT_DEVICE void add(int bin, uint64_t weight) const {
    atomicAdd(counts() + bin, 1u);
    if (weight == 0) return;
    const auto part = static_cast<uint32_t>(weight);
    const uint32_t before = atomicAdd(low() + bin, part);
    const uint32_t carry = static_cast<uint32_t>(weight >> 32) + (before + part < before ? 1u : 0u);
    if (carry != 0) atomicAdd(high() + bin, carry);
  }
};

// No element of the bin, or of one before it, lies further below the largest; negated, as bin_of's argument is.
NODEWRIGHT_DEVICE float end_of_bin(int bin) {
  if (bin >= kBins - 1) return -INFINITY;
  return 8.0f - bits_to_float(float_to_bits(8.0f) + (static_cast<uint32_t>(bin + 1) << kShiftOfBin));
}

NODEWRIGHT_CALLED void clear_bins(BinsPlace bins) {
  __syncthreads();
  NODEWRIGHT_NO_UNROLL
  for (int b = static_cast<int>(threadIdx.x); b < 3 * bins.size; b += static_cast<int>(kLogitRowThreads))
    bins.base[b] = 0;
  __syncthreads();
}

// Adds the sum over the warp, and counts it as one element if it is not 0.
NODEWRIGHT_CALLED void add_of_warp(BinsPlace bins, int bin, unsigned long long weight) {
  NODEWRIGHT_NO_UNROLL
  for (int offset = 16; offset > 0; offset /= 2) weight += __shfl_xor_sync(0xffffffffu, weight, offset);
  if (threadIdx.x % 32 == 0 && weight > 0) bins.add(bin, weight);
}

// A running sum over the lanes of a warp.
struct RunningSum {
  uint32_t count;
  unsigned long long weight;

  NODEWRIGHT_CALLED static RunningSum over_lanes(RunningSum here) {
    NODEWRIGHT_NO_UNROLL
    for (unsigned offset = 1; offset < 32; offset *= 2) {
      const uint32_t count = __shfl_up_sync(0xffffffffu, here.count, offset);
      const unsigned long long weight = __shfl_up_sync(0xffffffffu, here.weight, offset);
      if (threadIdx.x % 32 < offset) continue;
      here.count += count;
      here.weight += weight;
    }
    return here;
  }
};

// Thread t takes bin t: of this block's elements or, of several blocks, of the sums that are there.
NODEWRIGHT_CALLED void run_up(BinsPlace bins, unsigned long long* scratch, bool own) {
  const int b = static_cast<int>(threadIdx.x), lane = b % 32, warp = b / 32;
  RunningSum here{0, 0};
  if (b < bins.size) here = {own ? bins.counts()[b] : bins.count_sum()[b], own ? bins.weight(b) : bins.weight_sum()[b]};
  here = RunningSum::over_lanes(here);
  if (lane == 31) {
    scratch[2 * warp] = here.count;
    scratch[2 * warp + 1] = here.weight;
  }
  __syncthreads();
  RunningSum before{0, 0};  // lane l: up to and with warp l
  if (lane < static_cast<int>(kLogitRowThreads / 32))
    before = {static_cast<uint32_t>(scratch[2 * lane]), scratch[2 * lane + 1]};
  before = RunningSum::over_lanes(before);
  before.count = __shfl_sync(0xffffffffu, before.count, warp > 0 ? warp - 1 : 0);
  before.weight = __shfl_sync(0xffffffffu, before.weight, warp > 0 ? warp - 1 : 0);
  if (b < bins.size) {
    bins.count_sum()[b] = here.count + (warp > 0 ? before.count : 0);
    bins.weight_sum()[b] = here.weight + (warp > 0 ? before.weight : 0);
  }
  __syncthreads();
}

// Every block sums its share of the bins over all blocks, as many lanes a bin as there are, and tells all of them.
// `scratch`: 32 words of 64 bits.
template <int kBlocks>
NODEWRIGHT_CALLED void sum_bins(BinsPlace bins, unsigned long long* scratch) {
  sync_blocks<kBlocks>();
  if constexpr (kBlocks > 1) {
    const int first = cluster_rank() * (bins.size / kBlocks);
    NODEWRIGHT_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < bins.size; i += static_cast<int>(kLogitRowThreads)) {
      const int b = first + i / kBlocks, block = i % kBlocks;
      uint32_t count = load_from_block(block, bins.counts() + b);
      unsigned long long weight = load_from_block(block, bins.low() + b);
      weight += static_cast<unsigned long long>(load_from_block(block, bins.high() + b)) << 32;
      NODEWRIGHT_UNROLL
      for (int offset = kBlocks / 2; offset > 0; offset /= 2) {
        count += __shfl_xor_sync(0xffffffffu, count, offset);
        weight += __shfl_xor_sync(0xffffffffu, weight, offset);
      }
      store_to_block(block, bins.count_sum() + b, count);
      store_to_block(block, bins.weight_sum() + b, weight);
    }
    sync_blocks<kBlocks>();
  }
  run_up(bins, scratch, kBlocks == 1);
}

template <class T>
NODEWRIGHT_CALLED int first_reaching(const T* sums, int bins, T wanted) {
  int begin = 0, end = bins - 1;
  NODEWRIGHT_NO_UNROLL
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (sums[middle] >= wanted)
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

// All threads of the kBlocks blocks call every function.
template <int kBlocks>
struct WeightedBins {
  BinsPlace place;
  unsigned long long* scratch;  // [2 kLogitRowThreads / 32] of shared memory

  NODEWRIGHT_DEVICE void clear() const { clear_bins(place); }
  NODEWRIGHT_DEVICE void sum() const { sum_bins<kBlocks>(place, scratch); }

  // After sum(). The first bin at whose end `wanted` is reached; the last one where it is not.
  NODEWRIGHT_DEVICE int reaching_count(uint32_t wanted) const {
    return first_reaching<uint32_t>(place.count_sum(), place.size, wanted);
  }
  NODEWRIGHT_DEVICE int reaching_weight(unsigned long long wanted) const {
    return first_reaching<unsigned long long>(place.weight_sum(), place.size, wanted);
  }
  NODEWRIGHT_DEVICE uint32_t count_to(int bin) const { return bin >= 0 ? place.count_sum()[bin] : 0; }
  NODEWRIGHT_DEVICE unsigned long long weight_to(int bin) const { return bin >= 0 ? place.weight_sum()[bin] : 0; }
};

constexpr int kDigits = 256;

// The key of the element at which the weights (or the number) of the elements, taken from the largest key down, first
// reach `wanted`; 0 where they do not. `place`: of kDigits bins. walk(use) calls use(key, weight) for the elements,
// those of all blocks together.
template <int kBlocks, class Walk>
NODEWRIGHT_DEVICE uint32_t key_reaching(const WeightedBins<kBlocks>& bins, bool by_weight, unsigned long long wanted,
                                        Walk walk) {
  uint32_t prefix = 0;
  NODEWRIGHT_NO_UNROLL
  for (int shift = 24; shift >= 0; shift -= 8) {
    bins.clear();
    walk([&](uint32_t key, uint64_t weight) {
      if (shift < 24 && (key >> (shift + 8)) != (prefix >> (shift + 8))) return;
      bins.place.add(kDigits - 1 - static_cast<int>(key >> shift & 255u), by_weight ? weight : 0);
    });
    bins.sum();
    const int bin = by_weight ? bins.reaching_weight(wanted) : bins.reaching_count(static_cast<uint32_t>(wanted));
    prefix |= static_cast<uint32_t>(kDigits - 1 - bin) << shift;
    wanted -= by_weight ? bins.weight_to(bin - 1) : bins.count_to(bin - 1);
  }
  return prefix;
}

}  // namespace nodewright
