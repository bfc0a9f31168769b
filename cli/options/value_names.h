// What --help, the man page and the shells' completions call the value of an option: DIR, FILE, SIZE.
#pragma once

#include <CLI/CLI.hpp>

namespace nodewright::cli {

// After the commands were added: names the values of all options whose type says TEXT alone.
//   FILE, DIR          a path, which a shell completes
//   NAME=DIR           the path is after the sign
//   auto|none|FILE     alternatives: those without a capital letter are words that may be typed as they are
void name_values(CLI::App& app);

}  // namespace nodewright::cli
