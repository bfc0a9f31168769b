// The one prompt of a command: a text, a file, what a pipe holds, or token ids.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

namespace nodewright::cli {

struct PromptOptions {
  std::optional<std::string> text, ids;  // text "-": standard input
  std::filesystem::path file;            // empty: none
};

// --prompt, --prompt-file and --prompt-ids.
void add_prompt_options(CLI::App& command, PromptOptions& options);

// Throws Error (usage) unless one of them is given, or none and standard input is no terminal.
void check(const PromptOptions& options);

// The text that `options` name, without the line break at its end; it may be empty where it was asked for. Not for ids.
std::string prompt_text(const PromptOptions& options);

}  // namespace nodewright::cli
