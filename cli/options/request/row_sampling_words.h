// "greedy", "checkpoint" or "temperature=0.7,top_k=50,...": what --sampling of the measurements says.
#pragma once

#include <string>
#include <vector>

#include "bench/steps/row_sampling.h"
#include "models/config/model_config.h"

namespace nodewright::cli {

// For the option's help.
extern const char* const kSamplingWordsHelp;

// "greedy", "temperature=0.6,top_p=0.9": as row_sampling takes it.
std::string sampling_words(const Sampling& sampling, const ChoiceOptions& choice);

// Throws Error (usage) naming what is no setting, or out of range. `config`: whose vocabulary a mask is made for, and
// whose generation_config.json "checkpoint" means: it is named "checkpoint(temperature=0.7,top_p=0.95)", with what
// stands there.
RowSampling row_sampling(const std::string& words, const ModelConfig& config);
std::vector<RowSampling> row_samplings(const std::vector<std::string>& all, const ModelConfig& config);

}  // namespace nodewright::cli
