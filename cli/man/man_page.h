// The manual page nodewright(1), in the macros of man(7), from the outline of the program's commands.
#pragma once

#include <string>

#include "cli/outline/command_outline.h"

namespace nodewright::cli {

std::string man_page(const CommandOutline& program);

}  // namespace nodewright::cli
