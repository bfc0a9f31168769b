// The device's side of an Exchange among `Ranks` ranks. A thread sends all that it has before it takes anything.
#pragma once

#include "kernels_src/device/numeric.cuh"
#include "kernels_src/device/packets.cuh"
#include "kernels_src/exchange/exchange.h"

namespace nodewright {

// Calls f(rank, to, from) for every rank but the own one, in their order.
template <int Ranks, class Function>
NODEWRIGHT_DEVICE void for_each_peer(const Exchange& e, Function f) {
  static_assert(Ranks >= 2 && Ranks <= kMostRanks, "a team has 2 to 8 ranks");
  const auto visit = [&](int rank, const PeerOut<Packet>& to, const PeerIn<Packet>& from) {
    if (rank != static_cast<int>(e.rank)) f(rank, to.data, from.data);
  };
  visit(0, e.to0, e.from0);
  visit(1, e.to1, e.from1);
  if constexpr (Ranks > 2) visit(2, e.to2, e.from2);
  if constexpr (Ranks > 3) visit(3, e.to3, e.from3);
  if constexpr (Ranks > 4) visit(4, e.to4, e.from4);
  if constexpr (Ranks > 5) visit(5, e.to5, e.from5);
  if constexpr (Ranks > 6) visit(6, e.to6, e.from6);
  if constexpr (Ranks > 7) visit(7, e.to7, e.from7);
}

// What the packets of this exchange carry in this launch; after wait_for_inputs().
NODEWRIGHT_DEVICE uint32_t epoch_of(const Exchange& e) {
#ifdef __CUDACC_RTC__
  const uint32_t launch = __ldcg(e.launch.data);
#else
  const uint32_t launch = *e.launch.data;
#endif
  return launch * e.most + e.number.value;
}

// Sends element `i` to all other ranks.
template <int Ranks>
NODEWRIGHT_DEVICE void send(const Exchange& e, int64_t i, float value, uint32_t epoch) {
  for_each_peer<Ranks>(e, [&](int, Packet* to, const Packet*) { push(to + i, value, epoch); });
}

// Where values go one way or not at all: one thread has sent element `i` to all other ranks and takes theirs, after
// all else that it does. Without it a rank that takes nothing could be an exchange further than the two slots allow,
// and write where another one still reads.
template <int Ranks>
NODEWRIGHT_DEVICE void meet(const Exchange& e, int64_t i, uint32_t epoch) {
  for_each_peer<Ranks>(e, [&](int, Packet*, const Packet* from) {
    take(from + i, look(from + i), epoch, {e.aborted.data, e.seen.data});
  });
}

// The packets of one element as a first look has seen them, arrived or not: by rank, the own one's empty.
template <int Ranks>
struct LookedAt {
  Packet packets[Ranks];
};
template <int Ranks>
NODEWRIGHT_DEVICE LookedAt<Ranks> look_at(const Exchange& e, int64_t i) {
  LookedAt<Ranks> looked = {};
  for_each_peer<Ranks>(e, [&](int rank, Packet*, const Packet* from) { looked.packets[rank] = look(from + i); });
  return looked;
}

// The sum over all ranks of element `i`, of which this rank has sent `mine`: ((rank 0's + rank 1's) + rank 2's) and so
// on, once all have come. Never fused with what `mine` comes of, or the ranks' bits would differ.
template <int Ranks>
NODEWRIGHT_DEVICE float take_sum(const Exchange& e, int64_t i, const LookedAt<Ranks>& looked, float mine,
                                 uint32_t epoch) {
  float sum = 0.0f;
  int added = 0;
  const int own = static_cast<int>(e.rank);
  for_each_peer<Ranks>(e, [&](int rank, Packet*, const Packet* from) {
    const float theirs = take(from + i, looked.packets[rank], epoch, {e.aborted.data, e.seen.data});
    if (added == own) sum = added++ == 0 ? mine : __fadd_rn(sum, mine);
    sum = added++ == 0 ? theirs : __fadd_rn(sum, theirs);
  });
  return added == own ? __fadd_rn(sum, mine) : sum;
}
// The same, with a look at all ranks' packets before it waits for the first.
template <int Ranks>
NODEWRIGHT_DEVICE float take_sum(const Exchange& e, int64_t i, float mine, uint32_t epoch) {
  return take_sum<Ranks>(e, i, look_at<Ranks>(e, i), mine, epoch);
}

// Two values that travel as one packet, in bf16.
struct ValuePair {
  float low, high;
};

NODEWRIGHT_DEVICE float packed(ValuePair v) { return __uint_as_float(pack_bf16(v.low, v.high)); }
NODEWRIGHT_DEVICE ValuePair unpacked(float packet) {
  const uint32_t bits = __float_as_uint(packet);
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}

}  // namespace nodewright
