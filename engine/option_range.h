// Numbers that an engine takes.
#pragma once

#include <cstdint>

namespace nodewright {

// Rows of the largest bucket: grid.y of the projections and of rope is the row, and 65535 is its limit; far above what
// pays.
inline constexpr int64_t kMostRows = 1024;

// Throws Error (usage) with the option's name where `value` is outside `least` to `most`.
void check_option(const char* option, int64_t value, int64_t least, int64_t most);

}  // namespace nodewright
