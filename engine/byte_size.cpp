#include "engine/byte_size.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace nodewright {
namespace {

// Bytes of a unit, upper or lower case; 0 for a word that is none.
double bytes_of_unit(std::string_view unit) {
  if (unit.empty()) return 1;
  const auto upper = [&](size_t i) { return std::toupper(static_cast<unsigned char>(unit[i])); };
  if (unit.size() == 1 && upper(0) == 'B') return 1;
  constexpr std::string_view kPrefixes = "KMGT";
  const size_t prefix = kPrefixes.find(static_cast<char>(upper(0)));
  const bool binary = unit.size() == 3 && upper(1) == 'I';
  const bool ends_in_b = unit.size() == 1 || upper(unit.size() - 1) == 'B';
  if (prefix == std::string_view::npos || !ends_in_b || (unit.size() == 3 && !binary) || unit.size() > 3) return 0;
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(prefix + 1));
}

}  // namespace

std::optional<uint64_t> parse_byte_size(std::string_view text) {
  const char* end = text.data() + text.size();
  uint64_t whole = 0;
  if (const auto read = std::from_chars(text.data(), end, whole); read.ec == std::errc() && read.ptr == end)
    return whole <= INT64_MAX ? std::optional(whole) : std::nullopt;
  double number = 0;
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit(read.ptr, static_cast<size_t>(end - read.ptr));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  const double bytes = number * bytes_of_unit(unit);
  if (unit.empty() || bytes_of_unit(unit) == 0 || bytes > 0x1p63) return std::nullopt;
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string byte_size_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : bytes < 10 ? 2 : bytes < 100 ? 1 : 0, units[unit]);
}

}  // namespace nodewright
