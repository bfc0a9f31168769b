#include "engine/drafts.h"

#include <algorithm>

namespace nodewright {

std::vector<int32_t> ngram_draft(std::span<const int32_t> tokens, int64_t most, int64_t longest_ngram) {
  const auto count = static_cast<int64_t>(tokens.size());
  const auto at = [&](int64_t i) { return tokens[static_cast<size_t>(i)]; };
  int64_t follows = 0, longest = 0;  // where the tokens behind the best occurrence begin
  for (int64_t end = count - 1; end > 0 && longest < longest_ngram; --end) {
    int64_t length = 0;
    while (length < longest_ngram && length < end && at(end - 1 - length) == at(count - 1 - length)) ++length;
    if (length > longest) longest = length, follows = end;
  }
  std::vector<int32_t> drafts;
  if (longest == 0) return drafts;
  for (int64_t i = 0; i < most; ++i) {
    const int64_t from = follows + i;
    drafts.push_back(from < count ? at(from) : drafts[static_cast<size_t>(from - count)]);
  }
  return drafts;
}

}  // namespace nodewright
