#include "bench/steps/prompt_step.h"

#include <numeric>
#include <vector>

#include "bench/measured_work.h"
#include "engine/device/step_inputs.h"

namespace nodewright {

PromptStep::PromptStep(const ModelPlace& place, const StepSlotsOptions& options) : device(place, options, nullptr) {
  const int tokens = options.buckets.largest();
  const DecodeState state = device.state(0, tokens);
  device.make_cache(options, options.pages);
  plan = device.step_plan(device.cache(), tokens, state, options.policy, false, DecodePurpose::step);
  const std::vector<int32_t> prompt = some_tokens(tokens, device.config().vocab);
  std::vector<int32_t> pages(static_cast<size_t>(options.pages));
  std::iota(pages.begin(), pages.end(), 0);
  device.write_table(0, pages);
  for (int64_t row = 0; row < tokens; ++row) {
    const int64_t position = row == 0 ? tokens - 1 : row - 1;  // the one that chooses comes first
    write_row(state.host_inputs, row, {.token = prompt[static_cast<size_t>(position)], .position = position});
  }
  state.host_inputs.n_live.data[0] = static_cast<int32_t>(tokens);
  state.host_inputs.n_sampled.data[0] = 1;
}

}  // namespace nodewright
