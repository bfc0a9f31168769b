// --chat-template FILE, and --template-arg NAME=VALUE: the chat template, and variables of it, such as enable_thinking.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "serve/fields/json_fields.h"

namespace nodewright::cli {

void add_template_args(CLI::App& command, std::vector<std::string>& args);
void add_chat_template(CLI::App& command, std::filesystem::path& file);
// Throws Error where `file` is no template for the checkpoint in `folder`; empty: none was given.
void check_chat_template(const std::filesystem::path& folder, const std::filesystem::path& file);

// The values by their names: JSON where it is some, else a string. Throws Error (usage): an argument without a name or
// a value, a name twice, a name that is not the user's to give.
RequestJson template_args_of(const std::vector<std::string>& args);

}  // namespace nodewright::cli
