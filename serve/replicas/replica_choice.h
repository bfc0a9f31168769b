// Which of several replicas a request goes to: a pure function of what is known of each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "serve/loop/loop_load.h"

namespace nodewright {

// A replica as one request sees it.
struct ReplicaOffer {
  bool serves = true;        // false: it is asleep, or has failed
  LoopLoad load;             // before the request
  int64_t cached_pages = 0;  // that the request's prompt begins with, in the replica's cache
};

// What a request brings.
struct ReplicaDemand {
  int64_t prompt_tokens = 0;
  int64_t outputs = 1;
};

// When a cached prefix outweighs a shorter queue.
struct PrefixPreference {
  // Pages from which on a prefix counts. Four have 256 tokens, half of a step of 512: fewer hardly save one.
  int64_t least_pages = 4;
  // Tokens that the replica may have before it beyond those of the replica with the fewest: in a simulation,
  // prompts that share 2048 tokens find no more of them from here on
  // (bench/results/2026-11-26-replica-routing.json).
  int64_t most_more_tokens = 4096;
};

// Whether the replica would begin it now: a row is free, and the cache has pages; or it has nothing else to do.
bool has_room(const ReplicaOffer& offer, const ReplicaDemand& demand);

// Among those that serve and have room: the replica with the fewest queued tokens, the lowest number among equals; or
// one with more of the prompt's prefix in its cache, where PrefixPreference allows it. None: the request waits.
std::optional<size_t> choose_replica(std::span<const ReplicaOffer> offers, const ReplicaDemand& demand,
                                     const PrefixPreference& preference = {});

}  // namespace nodewright
