// --tool-call-parser and --reasoning-parser: what `run` and `serve` look for in answers.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "serve/tools/answer_parts.h"

namespace nodewright::cli {

struct ParserNames {
  std::string tool_calls = "auto", reasoning = "none";
};

void add_answer_parsers(CLI::App& command, ParserNames& names);

// For names that the command line has checked.
AnswerParsers answer_parsers_of(const ParserNames& names);

}  // namespace nodewright::cli
