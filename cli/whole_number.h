// A check for the parser, which by itself takes -1 for the largest unsigned number and anything huge for the largest.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>

namespace nodewright::cli {

// What is wrong with `text` as a decimal number of type Number; empty where nothing is. For CLI::Option::check.
template <typename Number>
std::string whole_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure == std::errc() && stopped == end) return {};
  return fmt::format("'{}' is not a whole number from {} to {}", text, std::numeric_limits<Number>::min(),
                     std::numeric_limits<Number>::max());
}

}  // namespace nodewright::cli
