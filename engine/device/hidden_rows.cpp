#include "engine/device/hidden_rows.h"

#include <algorithm>

namespace nodewright {
namespace {

// Tokens of a row of the plan whose hidden states are asked for: its last ones.
int64_t asked_tokens(HiddenStates hidden, const RowPlan& row) {
  if (hidden == HiddenStates::none) return 0;
  return hidden == HiddenStates::full ? row.tokens : row.chosen();
}

// Calls visit(row of the plan, position, row of the step) for each token that is asked for. Rows that see the head come
// first, in the order of the plan, then the others.
template <class Visit>
void for_each_asked(const PipelineState& pipeline, const StepPlan& plan, const Visit& visit) {
  int64_t next_sampled = 0, next_other = plan.chosen();
  for (const RowPlan& row : plan.rows) {
    const Request& request = *pipeline.find(row.request);
    const int64_t asked = request.is_resolved() ? 0 : asked_tokens(request.spec().hidden, row);
    for (int64_t left = row.tokens; left > 0; --left) {
      const int64_t step_row = left <= row.chosen() ? next_sampled++ : next_other++;
      if (left <= asked) visit(row, row.first + row.tokens - left, step_row);
    }
  }
}

}  // namespace

int64_t hidden_rows_needed(const PipelineState& pipeline, const StepPlan& plan) {
  int64_t needed = 0;
  for_each_asked(pipeline, plan, [&](const RowPlan&, int64_t, int64_t row) { needed = std::max(needed, row + 1); });
  return needed;
}

std::vector<HiddenRows> hidden_of(const PipelineState& pipeline, const StepPlan& plan, std::span<const float> values,
                                  int64_t hidden) {
  std::vector<HiddenRows> all;
  for_each_asked(pipeline, plan, [&](const RowPlan& row, int64_t position, int64_t step_row) {
    if (all.empty() || all.back().request != row.request) all.push_back({row.request, position, 0, {}});
    const auto of_row = values.subspan(static_cast<size_t>(step_row * hidden), static_cast<size_t>(hidden));
    all.back().values.insert(all.back().values.end(), of_row.begin(), of_row.end());
    ++all.back().rows;
  });
  return all;
}

void trim(HiddenRows& rows, int64_t first, int64_t end) {
  if (rows.rows == 0) return;
  const auto width = static_cast<int64_t>(rows.values.size()) / rows.rows;
  const int64_t kept_end = std::clamp(end - rows.first, int64_t{0}, rows.rows);
  const int64_t kept_first = std::clamp(first - rows.first, int64_t{0}, kept_end);
  rows.values.resize(static_cast<size_t>(kept_end * width));
  rows.values.erase(rows.values.begin(), rows.values.begin() + kept_first * width);
  rows.first += kept_first;
  rows.rows = kept_end - kept_first;
}

}  // namespace nodewright
