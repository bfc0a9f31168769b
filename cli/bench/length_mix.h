// "128,1024:2,100-2000": what --prompt-tokens and --output-tokens of bench serve say.
#pragma once

#include <string>

#include "bench/steps/arrivals.h"

namespace nodewright::cli {

// Lengths or ranges, with commas between them, each with its weight after a colon (1 where there is none). Throws
// Error (usage) naming `option` and the part that cannot be.
LengthMix length_mix(const std::string& option, const std::string& words);

}  // namespace nodewright::cli
