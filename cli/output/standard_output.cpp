#include "cli/output/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/visible_text.h"
#include "runtime/error.h"

namespace nodewright::cli {

void write_standard_output(std::string_view text) {
  static const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  const std::string shown = is_terminal ? visible_text(text) : "";
  draw_on_standard_output(is_terminal ? shown : text);
}

void draw_on_standard_output(std::string_view text) {
  // What failed before, where nobody looked, was thrown away: a later write succeeds without it.
  const bool lost = std::ferror(stdout) != 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0 && !lost) return;
  throw Error({.doing = "write to",
               .object = "standard output",
               .detail = lost ? "a part of it could not be written" : std::strerror(errno)});
}

}  // namespace nodewright::cli
