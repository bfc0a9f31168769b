// Values that say nothing, refused for all options at once: an empty text where no empty text means anything, and a
// value after the "=" of a flag, and a number beyond all integers, which the parser takes for the largest one.
#pragma once

#include <CLI/CLI.hpp>

namespace nodewright::cli {

// For all commands of `app`.
void refuse_empty_values(CLI::App& app);

}  // namespace nodewright::cli
