// Paths on the command line that cannot be right, found before anything is loaded: files that are not there, and places
// where no file of ours should be written.
#pragma once

#include <CLI/CLI.hpp>

namespace nodewright::cli {

// For all commands of `app`, by the names of their options.
void add_path_checks(CLI::App& app);

}  // namespace nodewright::cli
