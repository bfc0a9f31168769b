#include "runtime/error.h"

namespace nodewright {
namespace {

std::string one_line(const Error::Parts& parts) {
  std::string line = "cannot " + parts.doing;
  if (!parts.object.empty()) line += " '" + parts.object + "'";
  if (!parts.detail.empty()) line += ": " + parts.detail;
  if (!parts.driver.empty()) line += "; driver: " + parts.driver;
  if (!parts.advice.empty()) line += "; try: " + parts.advice;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  return line;
}

}  // namespace

Error::Error(Parts parts) : std::runtime_error(one_line(parts)), parts_(std::move(parts)) {}

}  // namespace nodewright
