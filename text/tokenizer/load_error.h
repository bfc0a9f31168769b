// The error of a tokenizer's file that cannot be used.
#pragma once

#include <string>

namespace nodewright {

// Throws Error naming `file`; `detail` names the thing in it, its value and what was expected.
[[noreturn]] void fail_load(const std::string& file, std::string detail,
                            std::string advice = "check that the file is complete, or download it again");

}  // namespace nodewright
