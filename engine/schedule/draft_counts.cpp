#include "engine/schedule/draft_counts.h"

#include <set>

namespace nodewright {

DraftCounts count_drafts(const std::map<RequestId, int64_t>& drafted, std::span<const CommittedToken> tokens) {
  DraftCounts counts;
  for (const auto& [request, drafts] : drafted) counts.drafted += drafts;
  std::set<RequestId> seen;
  for (const CommittedToken& token : tokens)
    if (drafted.contains(token.request)) counts.accepted += !seen.insert(token.request).second;
  return counts;
}

}  // namespace nodewright
