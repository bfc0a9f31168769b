// Decode steps of a team whose rows are two chains of half as many, one of which computes while the other exchanges,
// beside the same rows in one chain. Both read all weights, so few rows lose: the figure behind the refusal of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bench/spread.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

struct ChainsBenchOptions {
  int64_t rows = 8;       // of both chains together: even
  int64_t context = 128;  // keys that each row attends to
  int steps = 200;        // of a sample
  int rounds = 5;         // samples of each, taking turns
  Numerics numerics = Numerics::fast;
  EdgePolicy policy = EdgePolicy::programmatic;
  std::shared_ptr<const Tuning> tuning;
};

// ms a step, over the samples.
struct ChainsTimes {
  Spread one, two;
};

// Throws Error (usage) for one device, and for rows that are no even number from 4 on.
ChainsTimes bench_chains(std::span<const ModelPlace> ranks, const ChainsBenchOptions& options);

}  // namespace nodewright
