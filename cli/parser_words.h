// What the parser finds wrong with an option, in our words: its own speak of counts and of types.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace nodewright::cli {

// `error`: what the parser threw while it read the options of `command`, which `name` calls ("bench decode").
std::string parser_words(const std::string& name, const CLI::App& command, const CLI::ParseError& error);

}  // namespace nodewright::cli
