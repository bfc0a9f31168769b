// How tokens are chosen where a request does not say: by a program's options and, where those are silent, by the
// checkpoint's generation_config.json.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/device/step_inputs.h"
#include "engine/sampling/choice_options.h"
#include "models/config/model_config.h"

namespace nodewright {

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;  // none: another one each time
  bool greedy = false;
};

// The checkpoint's generation_config.json speaks where the command line is silent.
Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults);

// The penalties alone.
ChoiceOptions penalties_of(const SamplingOptions& options, const GenerationDefaults& defaults);

// The penalties, and what a checkpoint never wants chosen. With `greedy` the likeliest token is
// taken as it is, but for the latter.
ChoiceOptions choice_of(const SamplingOptions& options, const GenerationDefaults& defaults);

}  // namespace nodewright
