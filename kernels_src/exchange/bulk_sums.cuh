// Sums over the ranks of many rows at once, in bf16: chunks of sixteen-byte words without an epoch of their own, after
// each a flag that has one. Words are half the bytes of packets of two values.
#pragma once

#include "kernels_src/exchange/exchange.cuh"
#include "kernels_src/exchange/exchange_add.h"

namespace nodewright {

NODEWRIGHT_DEVICE uint4* words_behind(Packet* flags) { return reinterpret_cast<uint4*>(flags + kBulkFlags); }
NODEWRIGHT_DEVICE const uint4* words_behind(const Packet* flags) {
  return reinterpret_cast<const uint4*>(flags + kBulkFlags);
}

NODEWRIGHT_DEVICE void unpack_word(const uint4& word, float (&v)[8]) {
  const uint32_t pairs[4] = {word.x, word.y, word.z, word.w};
  NODEWRIGHT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const ValuePair pair = unpacked(__uint_as_float(pairs[i]));
    v[2 * i] = pair.low;
    v[2 * i + 1] = pair.high;
  }
}

// The sum over all ranks of the eight values at `word`, of which this rank has sent `mine`, in the order of the ranks.
template <int Ranks>
NODEWRIGHT_DEVICE void take_word_sum(const Exchange& e, int64_t word, const uint4& mine, float (&sum)[8]) {
  uint4 theirs[Ranks] = {};
  for_each_peer<Ranks>(
      e, [&](int rank, Packet*, const Packet* from) { theirs[rank] = load_word(words_behind(from) + word); });
  NODEWRIGHT_UNROLL
  for (int rank = 0; rank < Ranks; ++rank) {
    float v[8];
    unpack_word(rank == static_cast<int>(e.rank) ? mine : theirs[rank], v);
    NODEWRIGHT_UNROLL
    for (int i = 0; i < 8; ++i) sum[i] = rank == 0 ? v[i] : __fadd_rn(sum[i], v[i]);
  }
}

// A block sends a chunk, then takes the one before it: what comes travels while what has come is added, and nobody
// waits for a chunk that the other has not sent before it waits itself. Without rows there is an empty chunk: a rank
// that goes on knows that the others have taken the exchange before. word_of(row, col) is what this rank has of
// eight columns; put(row, col, sums) takes their sums, of NaN where the exchange is given up.
template <unsigned Threads = kExchangeAddThreads, class WordOf, class Put>
NODEWRIGHT_DEVICE void exchange_bulk(const Exchange& e, int64_t cols, int64_t live, uint32_t epoch, WordOf word_of,
                                     Put put) {
  constexpr int kTeam = static_cast<int>(kRanks), kEach = static_cast<int>(kBulkWords);
  const auto per_row = static_cast<uint32_t>(cols / 8), words = static_cast<uint32_t>(live) * per_row;
  const uint32_t chunk = Threads * kBulkWords, chunks = words == 0 ? 1 : (words + chunk - 1) / chunk;
  uint4 sent[kEach] = {};
  uint32_t sent_before = 0;  // chunks of this block
  for (uint32_t at = blockIdx.x; at < chunks + gridDim.x; at += gridDim.x, ++sent_before) {
    uint4 mine[kEach] = {};
    if (at < chunks) {
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const uint32_t word = at * chunk + j * Threads + threadIdx.x;
        if (word >= words) continue;
        mine[j] = word_of(word / per_row, static_cast<int64_t>(word % per_row) * 8);
        for_each_peer<kTeam>(e, [&](int, Packet* to, const Packet*) { push_word(words_behind(to) + word, mine[j]); });
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        fence_peers();
        for_each_peer<kTeam>(
            e, [&](int, Packet* to, const Packet*) { push(to + blockIdx.x, __uint_as_float(sent_before + 1), epoch); });
      }
    }
    if (sent_before > 0) {
      bool has_come = true;
      for_each_peer<kTeam>(e, [&](int, Packet*, const Packet* from) {
        has_come = wait_for_flag(from + blockIdx.x, sent_before, epoch, {e.aborted.data, e.seen.data}) && has_come;
      });
      NODEWRIGHT_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const uint32_t word = (at - gridDim.x) * chunk + j * Threads + threadIdx.x;
        if (word >= words) continue;
        float sums[8];
        take_word_sum<kTeam>(e, word, sent[j], sums);
        if (!has_come) sums[0] = sums[1] = __uint_as_float(0x7fffffffu);
        put(word / per_row, static_cast<int64_t>(word % per_row) * 8, sums);
      }
    }
    NODEWRIGHT_UNROLL
    for (int j = 0; j < kEach; ++j) sent[j] = mine[j];
  }
}

}  // namespace nodewright
