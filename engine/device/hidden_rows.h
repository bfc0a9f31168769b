// The hidden states of a request as they come back from a step, and where in the step they lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/pipeline.h"

namespace nodewright {

// The hidden states of successive tokens of a request.
struct HiddenRows {
  RequestId request = 0;
  int64_t first = 0;  // position of the first token
  int64_t rows = 0;
  std::vector<float> values;  // [rows, hidden] after the final norm, fp32
};

// Rows, the first of the step, among which is all that their requests ask for.
int64_t hidden_rows_needed(const PipelineState& pipeline, const StepPlan& plan);

// What the requests of a step that wait for it ask for: with `full` of each of their tokens, with `last` of those that
// choose, in both cases of every draft. `values` [rows, hidden]: of the step's first rows.
std::vector<HiddenRows> hidden_of(const PipelineState& pipeline, const StepPlan& plan, std::span<const float> values,
                                  int64_t hidden);

// Keeps what lies in positions `first` to `end` - 1.
void trim(HiddenRows& rows, int64_t first, int64_t end);

}  // namespace nodewright
