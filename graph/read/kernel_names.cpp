#include "graph/read/kernel_names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace nodewright {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

std::string short_name(std::string_view demangled) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string outside;  // of template arguments
  size_t depth = 0;
  while (!demangled.empty()) {
    if (demangled.starts_with(kAnonymous)) {
      demangled.remove_prefix(kAnonymous.size());
      continue;
    }
    const char c = demangled.front();
    demangled.remove_prefix(1);
    if (c == '(' && depth == 0) break;
    depth += c == '<';
    if (depth == 0) outside += c;
    depth -= c == '>' && depth > 0;
  }
  const size_t colon = outside.rfind("::");
  if (colon != std::string::npos) outside.erase(0, colon + 2);
  const size_t space = outside.rfind(' ');
  if (space != std::string::npos) outside.erase(0, space + 1);
  return outside.empty() ? "kernel" : outside;
}

}  // namespace nodewright
