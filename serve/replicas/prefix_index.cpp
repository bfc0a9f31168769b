#include "serve/replicas/prefix_index.h"

#include "engine/cache/kv_pool.h"
#include "models/kv_cache.h"

namespace nodewright {

std::vector<uint64_t> prefix_hashes(std::span<const int32_t> prompt) {
  constexpr auto kPage = static_cast<size_t>(kPageTokens);
  std::vector<uint64_t> hashes;
  uint64_t parent = 0;
  for (size_t begin = 0; begin + kPage < prompt.size(); begin += kPage)
    hashes.push_back(parent = chained_page_hash(parent, prompt.subspan(begin, kPage)));
  return hashes;
}

void PrefixIndex::follow(std::span<const PageEvent> events) {
  const std::lock_guard lock(mutex_);
  for (const PageEvent& event : events) switch (event.kind) {
      case PageEvent::Kind::stored:
        pages_.insert(event.pages.begin(), event.pages.end());
        break;
      case PageEvent::Kind::removed:
        for (const uint64_t page : event.pages) pages_.erase(page);
        break;
      case PageEvent::Kind::cleared:
        pages_.clear();
        break;
    }
}

int64_t PrefixIndex::leading_pages(std::span<const uint64_t> hashes) const {
  const std::lock_guard lock(mutex_);
  int64_t found = 0;
  while (found < std::ssize(hashes) && pages_.contains(hashes[static_cast<size_t>(found)])) ++found;
  return found;
}

}  // namespace nodewright
