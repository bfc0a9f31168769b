// What a command line has wrong, in one line, with what was perhaps meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nodewright::cli {

// `error`: what `app`, which holds all commands, threw while it parsed.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

// What is wrong with the names of commands in `words`, those after the program's own; empty where nothing is. The
// parser would not look at them once it has met --help, and shows the help of what stands before.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words);

// The help of the command that was named, which needs another word.
std::string help_of_named(const CLI::App& app);

}  // namespace nodewright::cli
