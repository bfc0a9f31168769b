// The names of kernels as people write them.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// "void at::native::fill<4, float>(int, float)" of a mangled name; any other name as it is.
std::string demangled(const char* symbol);

// The function's own name, without namespaces, template arguments and parameters: "fill".
std::string short_name(std::string_view demangled);

}  // namespace nodewright
