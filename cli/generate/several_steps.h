// generate --steps-per-launch: several steps of one sequence in each launch. An Engine looks at every token before it
// decides the next token, so this is a Decoder's loop, without what a request may ask of an Engine.
#pragma once

#include "cli/generate/one_request.h"
#include "cli/options/engine_options.h"
#include "engine/decoder.h"

namespace nodewright::cli {

// Throws Error (usage) naming --steps-per-launch and what only an engine knows.
void check_several_steps(const EngineSettings& engine, const ChoiceOptions& choice);

// As serve_one(), `most_steps` a launch at most.
RequestOutcome generate_several(Decoder& decoder, const RequestSpec& spec, const Sampling& sampling, int64_t most_steps,
                                const std::function<void(int32_t)>& token);

// What --stats says of its start.
std::string decoder_report(Decoder& decoder);

}  // namespace nodewright::cli
