#include "engine/sampling/prompt_scores.h"

namespace nodewright {

void PromptScores::ask(int slot, const Request& request, int64_t position, int32_t step_row, int top) {
  const int64_t next = position + 1;
  if (next >= request.prompt_tokens() || next < next_.try_emplace(request.id(), 1).first->second) return;
  at(slot).rows.push_back({step_row, request.token_at(next), top});
  at(slot).tokens.push_back({request.id(), next});
}

}  // namespace nodewright
