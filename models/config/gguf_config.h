// What the metadata of a GGUF file says of the network: as the config.json that the same model has elsewhere, and what
// the file holds otherwise than that says.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/gguf_file.h"
#include "models/config/model_config.h"

namespace nodewright {

// Where the names of a layer's tensors begin: TensorNames::layers.
inline constexpr std::string_view kGgufLayers = "blk";

// Keys of config.json, with "architectures" as transformers names them. Throws Error, naming the file and the key, for
// an architecture that is not supported and for a key that is missing or wrong.
nlohmann::json gguf_config(const GgufModel& model);

// After config.json's reader has read those keys: sets the names of tensors, and pairs of neighbours where the file's
// heads are reordered.
void apply_gguf(const GgufModel& model, ModelConfig& config);

}  // namespace nodewright
