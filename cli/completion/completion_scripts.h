// The scripts with which shells complete the command's words, from the outline of its commands.
#pragma once

#include <string>

#include "cli/outline/command_outline.h"

namespace nodewright::cli {

std::string bash_completion(const CommandOutline& program);  // bash 4
std::string zsh_completion(const CommandOutline& program);   // zsh 5
std::string fish_completion(const CommandOutline& program);  // fish 3

// The beginning of what is said of an option or a command: enough for a list of candidates.
std::string short_about(const std::string& about);

}  // namespace nodewright::cli
