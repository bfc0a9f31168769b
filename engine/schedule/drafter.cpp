#include "engine/schedule/drafter.h"

#include <algorithm>

namespace nodewright {
namespace {

// Tokens that one call adds to an index at most: a chunk's and more, in a fraction of a millisecond. A long prompt that
// was found in the cache is there some steps later, and until then has no drafts.
constexpr int64_t kMostIndexed = 1024;

}  // namespace

std::vector<int32_t> Drafter::drafts_of(const Request& request) const {
  if (!guesses_) {
    const auto ngrams = ngrams_.find(request.id());
    const bool is_there = ngrams != ngrams_.end() && ngrams->second.size() == request.known_tokens();
    return is_there ? ngrams->second.draft(most_) : std::vector<int32_t>();
  }
  std::vector<int32_t> drafts = guesses_(request);
  drafts.resize(std::min(drafts.size(), static_cast<size_t>(most_)));
  const auto unknown = std::ranges::find_if(drafts, [this](int32_t token) { return token < 0 || token >= vocab_; });
  drafts.erase(unknown, drafts.end());
  return drafts;
}

void Drafter::index_tokens(const Request& request) {
  NgramIndex& index = ngrams_[request.id()];
  const int64_t end = std::min(request.known_tokens(), index.size() + kMostIndexed);
  while (index.size() < end) index.append(request.token_at(index.size()));
}

}  // namespace nodewright
