// The angle that each pair of a head turns per token.
#pragma once

#include <vector>

#include "models/config/model_config.h"

namespace nodewright {

// [head_dim / 2] fp32, radians per token: theta^(-2i / head_dim), scaled as `rope` asks. The order of operations
// and their fp32 rounding are those of transformers (modeling_rope_utils.py); powers may differ in the last bit.
std::vector<float> rope_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace nodewright
