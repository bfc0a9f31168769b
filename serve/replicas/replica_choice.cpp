#include "serve/replicas/replica_choice.h"

namespace nodewright {

bool has_room(const ReplicaOffer& offer, const ReplicaDemand& demand) {
  const LoopLoad& load = offer.load;
  if (!offer.serves || load.rows == 0) return false;
  if (load.outputs == 0) return true;
  const int64_t pages = load.pages_for(demand.prompt_tokens, demand.outputs) - offer.cached_pages;
  return load.outputs < load.rows && pages <= load.free_pages;
}

std::optional<size_t> choose_replica(std::span<const ReplicaOffer> offers, const ReplicaDemand& demand,
                                     const PrefixPreference& preference) {
  std::optional<size_t> least;
  for (size_t i = 0; i < offers.size(); ++i)
    if (has_room(offers[i], demand) && (!least || offers[i].load.tokens < offers[*least].load.tokens)) least = i;
  if (!least) return {};
  size_t chosen = *least;
  for (size_t i = 0; i < offers.size(); ++i) {
    const ReplicaOffer &offer = offers[i], &best = offers[chosen];
    if (!has_room(offer, demand) || offer.cached_pages < preference.least_pages) continue;
    if (offer.load.tokens > offers[*least].load.tokens + preference.most_more_tokens) continue;
    const bool has_more = offer.cached_pages > best.cached_pages;
    if (has_more || (offer.cached_pages == best.cached_pages && offer.load.tokens < best.load.tokens)) chosen = i;
  }
  return chosen;
}

}  // namespace nodewright
