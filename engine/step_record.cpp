#include "engine/step_record.h"

#include <algorithm>

namespace nodewright {

StepRecord record_rows(const PipelineState& pipeline, const InFlightStep& step) {
  StepRecord record{.step = step.number};
  for (const RowPlan& row : step.plan.rows) {
    const auto drafts = static_cast<int64_t>(row.drafts.size());
    const bool decodes = row.first >= pipeline.find(row.request)->prompt_tokens() && row.tokens == 1 + drafts;
    (decodes ? record.decode_rows : record.prompt_tokens) += row.tokens;
    record.drafts += drafts;
  }
  return record;
}

double StepTimes::came(int slot) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point began = std::max(launched_.at(static_cast<size_t>(slot)), last_);
  last_ = now;
  return std::chrono::duration<double, std::micro>(now - began).count();
}

}  // namespace nodewright
