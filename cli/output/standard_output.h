// Standard output whose failures (a full disk, a closed pipe) are errors like any other.
#pragma once

#include <string_view>

namespace nodewright::cli {

// Writes `text` and lets the reader see it at once: a terminal as visible_text() has it, a pipe or a file byte by byte.
// Throws Error naming standard output and the system's words.
void write_standard_output(std::string_view text);

// As it is, escape codes included: for what draws on a terminal. Throws the same.
void draw_on_standard_output(std::string_view text);

}  // namespace nodewright::cli
