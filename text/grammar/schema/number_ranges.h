// The numbers that a JSON schema of type number or integer allows, as an expression of
// text/grammar/patterns/byte_pattern.h: its minimum, maximum and the exclusive ones (numbers, or true beside the
// others), and the formats of integers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nodewright {

// Numbers have at most 19 digits before the point. A bound farther out than those of 18 digits counts as the farthest
// of these; one that leaves none of them, or has more than 18 digits after the point, is refused. Throws Error (usage)
// naming `place` in the schema, and the keyword.
std::string number_range_pattern(const nlohmann::ordered_json& schema, bool whole, const std::string& place);

// Whether `format` is one of numbers, which says nothing of strings: int32, double, ...
bool is_number_format(const nlohmann::ordered_json& format);

}  // namespace nodewright
