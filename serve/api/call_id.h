// Names of calls and of tool calls, which nobody else has.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// `prefix` and 32 random hexadecimal digits. Thread-safe.
std::string random_id(std::string_view prefix);

}  // namespace nodewright
