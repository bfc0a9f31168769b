// The usage errors of options that a command cannot accept.
#pragma once

#include <string>

namespace nodewright::cli {

// "cannot use OPTION: WHY", with WAY_OUT as advice. Both throw Error (usage).
[[noreturn]] void refuse_option(std::string option, std::string why, std::string way_out = "");
// The same where two options exclude each other. `options`: "--a and --b".
[[noreturn]] void refuse_pair(std::string options, std::string why, std::string way_out = "");

}  // namespace nodewright::cli
