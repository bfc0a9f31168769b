// A check for the parser, which by itself takes -1 for the largest unsigned number and anything huge for the largest.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>

namespace nodewright::cli {

// What is wrong with `text` as a decimal number of type Number, not below `least`; empty where nothing is. For
// CLI::Option::check.
template <typename Number, Number least = std::numeric_limits<Number>::min()>
std::string whole_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure == std::errc() && stopped == end && number >= least) return {};
  return fmt::format("'{}' is not a whole number from {} to {}", text, least, std::numeric_limits<Number>::max());
}

}  // namespace nodewright::cli
