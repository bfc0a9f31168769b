// What --help prints: the options in groups, users' first and developers' last, each with its default, then examples.
#pragma once

#include <CLI/CLI.hpp>

namespace nodewright::cli {

// Before the commands are added: they take the look from the program.
void look_of_help(CLI::App& app);
// Behind them: puts each option into its group, and the examples below.
void arrange_help(CLI::App& app);

}  // namespace nodewright::cli
