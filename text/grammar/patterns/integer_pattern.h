// The integers of a range, written in decimal, as an expression of text/grammar/patterns/byte_pattern.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nodewright {

// Without leading zeros and at most 19 digits; no bound: as far as those go. -0 only where there is no bound at all.
// Empty where no integer is in the range.
std::string integer_pattern(std::optional<int64_t> least, std::optional<int64_t> most);

}  // namespace nodewright
