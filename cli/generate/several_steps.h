// generate --steps-per-launch: several steps of one sequence in each launch. An Engine looks at every token before it
// decides the next token, so this takes DirectSteps, without what a request may ask of an Engine.
#pragma once

#include "cli/generate/one_request.h"
#include "cli/options/engine_options.h"
#include "engine/direct_steps.h"

namespace nodewright::cli {

// Throws Error (usage) naming --steps-per-launch and what only an engine knows.
void check_several_steps(const EngineSettings& engine, const ChoiceOptions& choice);

// As serve_one().
RequestOutcome generate_several(DirectSteps& steps, const RequestSpec& spec, const Sampling& sampling,
                                const std::function<void(int32_t)>& token);

// What --stats says of its start.
std::string several_report(DirectSteps& steps);

}  // namespace nodewright::cli
