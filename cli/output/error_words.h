// An error of the library in the words of the command.
#pragma once

#include <string>

#include "runtime/error.h"

namespace nodewright::cli {

// The error's line, with `--device cpu` where the library advises its call for the CPU driver.
std::string error_words(const Error& error);

}  // namespace nodewright::cli
