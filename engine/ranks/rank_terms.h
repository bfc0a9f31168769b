// What must be equal on all ranks of a group before they run the same steps, as words that an error can show.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/ranks/rank_link.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

// The terms of completed options, a device and the rank's part of a model.
std::vector<RankTerm> rank_terms(const StepSlotsOptions& options, const Device& device, const ModelConfig& config);

// A checkpoint, as far as that is cheap: a hash of its config.json, of the names, sizes and headers of its safetensors
// files and of some of their bytes, a megabyte at most of each. Without `weights`: of config.json alone. A file that
// cannot be read counts as empty: loading says why.
std::string checkpoint_identity(const std::filesystem::path& folder, bool weights);

}  // namespace nodewright
