// How the commands that generate text choose tokens: their options, and what the checkpoint says where those are
// silent.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "engine/device/step_inputs.h"
#include "engine/sampling/choice_options.h"
#include "models/config/model_config.h"

namespace nodewright::cli {

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;  // none: another one each time
  bool greedy = false;
};

// --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --presence-penalty, --frequency-penalty, --seed,
// --greedy.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// Throws Error (usage) naming the option that is out of range.
void check(const SamplingOptions& options);

// The checkpoint's generation_config.json speaks where the command line is silent.
Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults);

// The same for the penalties, and what a checkpoint never wants chosen. With `greedy` the likeliest token is
// taken as it is, but for the latter.
ChoiceOptions choice_of(const SamplingOptions& options, const GenerationDefaults& defaults);

// Names on stderr what the checkpoint asks for and nothing here does.
void tell_ignored(const GenerationDefaults& defaults);

}  // namespace nodewright::cli
