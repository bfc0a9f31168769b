// A checkpoint folder looked at part by part, so that each part that keeps it from running is named: loading ends at
// the first.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/tokenizer_outline.h"
#include "models/config/model_config.h"
#include "models/weights/model_summary.h"

namespace nodewright::cli {

// Why a part cannot be used. One line.
struct Obstacle {
  std::string part;  // "config", "generation_config", "weights", "tokenizer", "chat_template"
  std::string why;
};

struct InspectedFolder {
  std::optional<ModelConfig> config;    // nothing where it cannot be used
  std::optional<ModelSummary> summary;  // the same; also where config and weights disagree
  std::optional<TokenizerOutline> tokenizer;
  std::string chat_template;  // the file that has it; empty: none
  std::vector<Obstacle> obstacles;
};

// `asked`: sets what no file says in the configuration. Throws only what is no matter of the folder.
InspectedFolder inspect_folder(const std::filesystem::path& folder, LayerMatrices matrices,
                               const std::function<void(ModelConfig&)>& asked);

}  // namespace nodewright::cli
