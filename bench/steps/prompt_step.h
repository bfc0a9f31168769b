// A prompt that goes through a model in one step, with everything it needs; launched again, it writes the same keys.
#pragma once

#include "engine/device/step_device.h"

namespace nodewright {

struct PromptStep {
  // `options`: the largest bucket is the prompt, `pages` hold it.
  PromptStep(const ModelPlace& place, const StepSlotsOptions& options);

  StepDevice device;
  Plan plan;
};

}  // namespace nodewright
