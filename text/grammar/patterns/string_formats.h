// The strings of JSON schema's `format`, as expressions of text/grammar/patterns/byte_pattern.h. Every text of an
// expression is of its format; the expressions leave out rare ones, such as 29 February.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// Empty where the format is not known.
std::string string_format_pattern(std::string_view format);

// The known ones, for errors.
std::string known_string_formats();

}  // namespace nodewright
