// The configuration of a checkpoint folder, with what its tokenizer says.
#pragma once

#include <filesystem>
#include <optional>

#include "models/config/model_config.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {

// As read_model_config; the token that ends a text by the tokenizer's files ends one, too. Defaults that
// generation_config.json has are checked as those of a request are. Throws Error.
ModelConfig read_config(const std::filesystem::path& folder, const std::optional<Tokenizer>& tokenizer);

// The same where a command has no tokenizer: it is loaded if its files name such a token.
ModelConfig read_config_of_ids(const std::filesystem::path& folder);

}  // namespace nodewright::cli
