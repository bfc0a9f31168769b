// How the commands that generate text choose tokens: their options, and what the checkpoint says where those are
// silent.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "engine/decoder.h"
#include "models/model_config.h"

namespace nodewright::cli {

struct SamplingOptions {
  std::optional<double> temperature, top_p;
  std::optional<int64_t> top_k;
  uint64_t seed = 0;
  bool greedy = false;
};

// --temperature, --top-k, --top-p, --seed, --greedy.
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// Throws Error (usage) naming the option that is out of range.
void check(const SamplingOptions& options);

// The checkpoint's generation_config.json speaks where the command line is silent.
Sampling sampling_of(const SamplingOptions& options, const GenerationDefaults& defaults);

}  // namespace nodewright::cli
