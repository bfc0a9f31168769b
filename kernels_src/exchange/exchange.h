// How a kernel of one rank of a team exchanges values with all others: each sends what it has to every other one, takes
// what they have sent, and adds all in the order of the ranks, so that all ranks get the same bits.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// Ranks that a team may have.
inline constexpr int kMostRanks = 8;

// One exchange, as a kernel of one rank sees it: for each other rank the packets there that this one writes, and those
// here that the other writes. Those of the rank itself are empty, and those of ranks that the team does not have. Made
// by TeamRank::exchange (graph/team/team_plan.h); empty, it stands for no exchange.
struct Exchange {
  Optional<PeerOut<Packet>> to0, to1, to2, to3, to4, to5, to6, to7;                 // [count] in that rank
  Optional<PeerIn<Packet>> from0, from1, from2, from3, from4, from5, from6, from7;  // [count] of that rank
  Optional<In<uint32_t>> launch = {};                                               // [1] number of the launch, from 1
  Optional<In<uint32_t>> aborted = {};  // [1] the host's word: not 0, do not wait, the launch is given up
  Optional<InOut<uint32_t>> seen = {};  // [1] of this device: a kernel has seen that
  ExchangeNumber number;                // in the plan
  uint32_t most;                        // exchanges that a launch may have: epochs are launch * most + number
  uint32_t rank;                        // this one
};

// A bulk exchange of rows, [rows, cols] with cols a multiple of 8: flags, then words of eight values in bf16. A flag of
// each block says how many of its chunks have come, which bounds the blocks of a grid; flags stay where
// they are whatever the step's size, so that no word is ever taken for one.
inline constexpr unsigned kBulkFlags = 1024;
// Words of a thread in a chunk.
inline constexpr unsigned kBulkWords = 2;
// The packets that it takes in a rank's memory.
constexpr uint64_t bulk_packets(uint64_t values) { return kBulkFlags + values / 4; }

}  // namespace nodewright
