#include "runtime/error.h"

namespace nodewright {
namespace {

// Names and texts of files stand in errors, and a file may hold a name of a gigabyte.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 4096;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // between characters of UTF-8
  return text.substr(0, end) + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string one_line(const Error::Parts& parts) {
  std::string line = "cannot " + parts.doing;
  if (!parts.object.empty()) line += " '" + shortened(parts.object) + "'";
  if (!parts.detail.empty()) line += ": " + shortened(parts.detail);
  if (!parts.driver.empty()) line += "; driver: " + parts.driver;
  if (!parts.advice.empty()) line += "; try: " + parts.advice;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  return line;
}

}  // namespace

Error::Error(Parts parts) : std::runtime_error(one_line(parts)), parts_(std::move(parts)) {}

}  // namespace nodewright
