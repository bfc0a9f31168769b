#include "cli/output/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/error.h"

namespace nodewright::cli {

void write_standard_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  throw Error({.doing = "write to", .object = "standard output", .detail = std::strerror(errno)});
}

}  // namespace nodewright::cli
