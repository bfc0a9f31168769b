// What --help prints: the options in groups, users' first and developers' last, each with its default, then examples.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nodewright::cli {

// Before the commands are added: they take the look from the program.
void look_of_help(CLI::App& app);
// After them: puts each option into its group, and the examples below.
void arrange_help(CLI::App& app);

// The titles of its groups of options, users' first and developers' last.
std::vector<std::string> groups_in_order(const CLI::App& command);

}  // namespace nodewright::cli
