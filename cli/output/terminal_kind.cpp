#include "cli/output/terminal_kind.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace nodewright::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool obeys_escape_codes(int descriptor) {
  const std::string_view terminal = variable("TERM");
  return isatty(descriptor) != 0 && !terminal.empty() && terminal != "dumb";
}

int columns_of(int descriptor) {
  constexpr int kFewest = 10;
  winsize size{};
  if (!obeys_escape_codes(descriptor) || ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col >= kFewest ? size.ws_col : 0;
}

bool shows_colors(int descriptor) { return obeys_escape_codes(descriptor) && variable("NO_COLOR").empty(); }

}  // namespace nodewright::cli
