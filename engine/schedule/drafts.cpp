#include "engine/schedule/drafts.h"

#include <algorithm>

namespace nodewright {
namespace {

// FNV-1a over tokens, its length first.
uint64_t hash_of(std::span<const int32_t> ngram) {
  uint64_t hash = (14695981039346656037u ^ ngram.size()) * 1099511628211u;
  for (const int32_t token : ngram) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
  return hash;
}

}  // namespace

std::span<const int32_t> NgramIndex::ngram(int64_t end, int64_t length) const {
  return std::span(tokens_).subspan(static_cast<size_t>(end - length), static_cast<size_t>(length));
}

void NgramIndex::append(int32_t token) {
  const int64_t end = size();
  for (int64_t length = 1; length <= std::min(longest_, end); ++length) ends_[hash_of(ngram(end, length))] = end;
  tokens_.push_back(token);
}

std::vector<int32_t> NgramIndex::draft(int64_t most) const {
  std::vector<int32_t> drafts;
  const int64_t count = size();
  for (int64_t length = std::min(longest_, count); length > 0; --length) {
    const std::span<const int32_t> last = ngram(count, length);
    const auto found = ends_.find(hash_of(last));
    if (found == ends_.end() || !std::ranges::equal(ngram(found->second, length), last)) continue;
    for (int64_t i = 0; i < most; ++i) {
      const int64_t from = found->second + i;
      drafts.push_back(from < count ? tokens_[static_cast<size_t>(from)] : drafts[static_cast<size_t>(from - count)]);
    }
    break;
  }
  return drafts;
}

}  // namespace nodewright
