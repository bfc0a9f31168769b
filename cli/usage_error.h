// What a command line has wrong, in one line, with what was perhaps meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace nodewright::cli {

// `error`: what `app`, which holds all commands, threw while it parsed.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

// The help of the command that was named, which needs another word.
std::string help_of_named(const CLI::App& app);

}  // namespace nodewright::cli
