// The pages that one replica's cache offers to prompts, by their hashes: followed from its engine's page events, asked
// for by the code that distributes requests.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/cache/page_events.h"

namespace nodewright {

// Hashes of the whole pages before the prompt's last token, as an engine computes them for prompts without an adapter.
std::vector<uint64_t> prefix_hashes(std::span<const int32_t> prompt);

// Thread-safe. 8 bytes and what a hash table adds for each page of the cache.
class PrefixIndex {
 public:
  void follow(std::span<const PageEvent> events);
  // How many of these pages, from the first on, the cache has.
  int64_t leading_pages(std::span<const uint64_t> hashes) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<uint64_t> pages_;
};

}  // namespace nodewright
