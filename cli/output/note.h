// A word to the person at a terminal: on standard error, with whole words in each line where that is a terminal.
#pragma once

#include <string_view>

namespace nodewright::cli {

// Whole lines, with their line feeds. Never throws, as say_text().
void note(std::string_view text) noexcept;

}  // namespace nodewright::cli
