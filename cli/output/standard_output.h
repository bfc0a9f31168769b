// Standard output whose failures (a full disk, a closed pipe) are errors like any other.
#pragma once

#include <string_view>

namespace nodewright::cli {

// Writes `text` and lets the reader see it at once. Throws Error naming standard output and the system's words.
void write_standard_output(std::string_view text);

}  // namespace nodewright::cli
