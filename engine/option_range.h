// Numbers that an engine takes.
#pragma once

#include <cstdint>

namespace nodewright {

// Rows of the largest bucket: grid.y of rope and of the activation is the row, and 65535 is its limit; beyond 8192 rows
// products gain nothing.
inline constexpr int64_t kMostRows = 8192;

// Throws Error (usage) with the option's name where `value` is outside `least` to `most`.
void check_option(const char* option, int64_t value, int64_t least, int64_t most);

}  // namespace nodewright
