// How many drafts a step checked, and how many of them were what was chosen.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "engine/schedule/pipeline.h"

namespace nodewright {

struct DraftCounts {
  int64_t drafted = 0, accepted = 0;
};

// `drafted`: drafts of each request. Of the tokens that such a request accepted all but the last were drafts. In time
// that grows with both, not with their product.
DraftCounts count_drafts(const std::map<RequestId, int64_t>& drafted, std::span<const CommittedToken> tokens);

}  // namespace nodewright
