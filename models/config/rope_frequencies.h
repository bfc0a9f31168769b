// The angles of rotary position embedding, as transformers computes them (modeling_rope_utils.py).
#pragma once

#include <cstdint>
#include <vector>

#include "models/config/model_config.h"

namespace nodewright {

// Radians a token: [dim / 2], for heads of which `dim` elements are rotated. `context`: tokens of the longest sequence;
// longrope has other factors, and dynamic another base, for those beyond the original context, and one choice serves
// all of an engine's sequences.
std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t dim, int64_t context = 0);

// What kernels read: [head_dim / 2] radians a token, zero for pairs that are not rotated, and where the model scales
// turns [head_dim / 2] amplitudes after them. `rope` null: of a layer that does not rotate.
std::vector<float> rotation_table(const ModelConfig& config, const RopeConfig* rope, int64_t context);

}  // namespace nodewright
