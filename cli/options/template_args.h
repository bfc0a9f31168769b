// --template-arg NAME=VALUE: variables of the checkpoint's chat template, such as enable_thinking.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "serve/fields/json_fields.h"

namespace nodewright::cli {

void add_template_args(CLI::App& command, std::vector<std::string>& args);

// The values by their names: JSON where it is some, else a string. Throws Error (usage): an argument without a name or
// a value, a name twice, a name that is not the user's to give.
RequestJson template_args_of(const std::vector<std::string>& args);

}  // namespace nodewright::cli
