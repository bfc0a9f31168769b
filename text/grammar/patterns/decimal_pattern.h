// The numbers of a range, written in decimal without an exponent, as an expression of
// text/grammar/patterns/byte_pattern.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nodewright {

// One end of a range.
struct DecimalBound {
  bool is_negative = false;
  std::string whole, fraction;  // digits of the magnitude: without leading zeros but for one, without trailing zeros
  bool is_excluded = false;     // the range begins after it, or ends before it
  bool operator==(const DecimalBound&) const = default;
};

// A number as JSON writes it. Nothing where it has more than 18 digits before or after the point.
std::optional<DecimalBound> decimal_bound(std::string_view number, bool is_excluded);

// At most 19 digits before the point and 18 after those of a bound; no bound: as far as those go. Never -0. Empty
// where no number is in the range.
std::string decimal_pattern(const std::optional<DecimalBound>& least, const std::optional<DecimalBound>& most);

}  // namespace nodewright
