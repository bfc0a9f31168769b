#include "engine/schedule/step_plan.h"

#include <fmt/format.h>

namespace nodewright {

int64_t StepPlan::tokens() const {
  int64_t sum = 0;
  for (const RowPlan& row : rows) sum += row.tokens;
  return sum;
}

int64_t StepPlan::chosen() const {
  int64_t sum = 0;
  for (const RowPlan& row : rows) sum += row.chosen();
  return sum;
}

std::string why_not_row(StepKind kind, const RowPlan& row, const Request* request) {
  if (!request) return fmt::format("there is no request {}", row.request);
  if (row.first != request->computed())
    return fmt::format("the row of request {} begins at {}, and it has computed {}", row.request, row.first,
                       request->computed());
  if (row.output != request->next_output())
    return fmt::format("the row of request {} chooses output {}, and {} comes next", row.request, row.output,
                       request->next_output());
  if (request->phase() == RequestPhase::prefilling) {
    if (kind != StepKind::prefill) return fmt::format("request {} is not prefilled", row.request);
    if (!row.drafts.empty()) return fmt::format("request {} has drafts before its first output", row.request);
    const bool is_last = row.tokens == request->prompt_left();
    if (row.tokens < 1 || row.tokens > request->prompt_left() || row.samples != is_last)
      return fmt::format("{} tokens of request {}, {}, and {} of its prompt are left", row.tokens, row.request,
                         row.samples ? "sampled" : "not sampled", request->prompt_left());
    return "";
  }
  if (!request->can_decode())
    return fmt::format("request {} is {}, with {} of {} outputs and {} steps in flight", row.request,
                       name_of(request->phase()), request->outputs().size(), request->most_outputs(),
                       request->in_flight());
  const auto drafts = static_cast<int64_t>(row.drafts.size());
  if (row.tokens != 1 + drafts || !row.samples)
    return fmt::format("request {} decodes one token a step, and {} drafts", row.request, drafts);
  if (drafts > 0 && kind == StepKind::prefill) return fmt::format("request {} has drafts in a prefill", row.request);
  if (drafts > 0 && request->spec().constrained)
    return fmt::format("request {} is constrained, and has drafts, whose masks are not known", row.request);
  if (drafts > request->most_drafts())
    return fmt::format("request {} has {} drafts, and {} are the most", row.request, drafts, request->most_drafts());
  return "";
}

}  // namespace nodewright
