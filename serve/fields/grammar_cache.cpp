#include "serve/fields/grammar_cache.h"

#include <utility>

namespace nodewright {
namespace {

// A look at all of them takes microseconds, and the least that one holds is a few KiB.
constexpr size_t kMostKept = 1024;

}  // namespace

std::shared_ptr<SharedGrammar> GrammarCache::find(const std::string& pattern) {
  const auto found = by_pattern_.find(pattern);
  if (found == by_pattern_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return kept_.front().grammar;
}

void GrammarCache::add(const std::string& pattern, std::shared_ptr<SharedGrammar> grammar) {
  kept_.push_front({pattern, std::move(grammar)});
  by_pattern_[kept_.front().pattern] = kept_.begin();
  size_t bytes = 0, count = 0;
  for (auto one = kept_.begin(); one != kept_.end();) {
    bytes += one->grammar->bytes();
    if (count++ == 0 || (bytes <= most_bytes_ && count <= kMostKept)) {
      ++one;
      continue;
    }
    by_pattern_.erase(one->pattern);
    one = kept_.erase(one);
  }
}

}  // namespace nodewright
