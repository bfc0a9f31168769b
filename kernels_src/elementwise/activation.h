// The function between the two halves of a feed-forward block, as the constant kActivation.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

enum class Activation : uint8_t { none, gelu_erf, gelu_tanh, silu };

}  // namespace nodewright
