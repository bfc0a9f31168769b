// How the commands that generate text choose tokens, as options of the command line.
#pragma once

#include <CLI/CLI.hpp>

#include "engine/sampling/sampling_options.h"
#include "models/config/model_config.h"

namespace nodewright::cli {

// --temperature, --top-k, --top-p, --min-p, --repetition-penalty, --presence-penalty, --frequency-penalty, --seed,
// --greedy.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// Throws Error (usage) naming the option that is out of range.
void check(const SamplingOptions& options);

// Names on stderr what the checkpoint asks for and nothing here does.
void tell_ignored(const GenerationDefaults& defaults);

}  // namespace nodewright::cli
