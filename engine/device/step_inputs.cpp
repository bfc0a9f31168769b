#include "engine/device/step_inputs.h"

#include <algorithm>

#include "kernels_src/step/advance.h"

namespace nodewright {

void write_row(const StepInputs& in, int64_t row, const RowInputs& inputs) {
  in.tokens.data[row] = inputs.token;
  in.positions.data[row] = static_cast<int32_t>(inputs.position);
  in.sequences.data[row] = inputs.sequence;
  in.temperature.data[row] = inputs.sampling.temperature;
  in.min_p.data[row] = inputs.sampling.min_p;
  in.top_k.data[row] = inputs.sampling.top_k;
  in.top_p.data[row] = inputs.sampling.top_p;
  in.seed.data[row] = inputs.sampling.seed.value_or(0);
  if (in.adapters.count > 0) in.adapters.data[row] = inputs.adapter;
  in.output_index.data[row] = static_cast<int32_t>(inputs.output);
}

void write_end(const StepInputs& in, int64_t row, int64_t most, std::span<const int32_t> stop_ids) {
  in.left.data[row] = static_cast<int32_t>(most);
  in.caller_row.data[row] = static_cast<int32_t>(row);
  int32_t* ids = in.stop_ids.data + row * kMostStopIds;
  std::fill(std::ranges::copy(stop_ids, ids).out, ids + kMostStopIds, -1);
}

}  // namespace nodewright
