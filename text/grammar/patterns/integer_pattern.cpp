#include "text/grammar/patterns/integer_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace nodewright {
namespace {

constexpr uint64_t kLargestMagnitude = 9'999'999'999'999'999'999u;  // 19 digits

void add_choice(std::string& choices, const std::string& one) { choices += (choices.empty() ? "" : "|") + one; }

// A digit of first to last, and any `rest` digits after it.
std::string digit_then_any(char first, char last, size_t rest) {
  return fmt::format("[{}-{}]", first, last) + (rest > 0 ? fmt::format("[0-9]{{{}}}", rest) : "");
}

// The numbers of as many digits as `least` and `most` have between them; an empty bound counts for nothing, and then
// `least` and `most` are of the digits that are left.
std::string digits_between(std::string_view least, std::string_view most, bool is_bounded_below,
                           bool is_bounded_above) {
  const size_t size = std::max(least.size(), most.size());
  if (size == 0) return "";
  if (!is_bounded_below && !is_bounded_above) return fmt::format("[0-9]{{{}}}", size);
  const char low = is_bounded_below ? least[0] : '0', high = is_bounded_above ? most[0] : '9';
  const auto behind = [&](char digit, bool below, bool above) {
    return digit + digits_between(least.substr(1), most.substr(1), below, above);
  };
  if (low == high) return behind(low, is_bounded_below, is_bounded_above);
  std::string choices;
  if (is_bounded_below) add_choice(choices, behind(low, true, false));
  const char first = static_cast<char>(low + is_bounded_below), last = static_cast<char>(high - is_bounded_above);
  if (first <= last) add_choice(choices, digit_then_any(first, last, size - 1));
  if (is_bounded_above) add_choice(choices, behind(high, false, true));
  return "(?:" + choices + ")";
}

std::string magnitudes_between(uint64_t least, uint64_t most) {
  std::string choices;
  for (uint64_t low = least; low <= most;) {
    const size_t digits = std::to_string(low).size();
    uint64_t high = most;  // of as many digits
    if (std::to_string(most).size() > digits) high = std::stoull(std::string(digits, '9'));
    add_choice(choices, digits_between(std::to_string(low), std::to_string(high), true, true));
    low = high + 1;
  }
  return choices;
}

}  // namespace

std::string integer_pattern(std::optional<int64_t> least, std::optional<int64_t> most) {
  if (!least && !most) return "-?(?:0|[1-9][0-9]{0,18})";
  std::string choices;
  if (!least || *least < 0) {
    const uint64_t low = most && *most < 0 ? uint64_t{0} - static_cast<uint64_t>(*most) : 1;
    const uint64_t high = least ? uint64_t{0} - static_cast<uint64_t>(*least) : kLargestMagnitude;
    if (low <= high) add_choice(choices, "-(?:" + magnitudes_between(low, high) + ")");
  }
  if (!most || *most >= 0) {
    const uint64_t low = static_cast<uint64_t>(std::max<int64_t>(0, least.value_or(0)));
    const uint64_t high = most ? static_cast<uint64_t>(*most) : kLargestMagnitude;
    if (low <= high) add_choice(choices, magnitudes_between(low, high));
  }
  return choices.empty() ? "" : "(?:" + choices + ")";
}

}  // namespace nodewright
